//! Answers: JSON, and problem details (RFC 9457) where something is wrong.

use baton_server::{ConnId, Io};
use serde::Serialize;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

pub struct Reply {
    status: u16,
    content_type: &'static str,
    header: Option<(&'static str, String)>,
    body: Vec<u8>,
}

/// The type is `about:blank`, so the title is that of the status.
#[derive(Serialize)]
struct Problem<'p> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'p str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    errors: &'p [String],
}

impl Reply {
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        Self::of(status, JSON, value)
    }

    pub fn text(content_type: &'static str, text: String) -> Self {
        Self {
            status: 200,
            content_type,
            header: None,
            body: text.into_bytes(),
        }
    }

    pub fn problem(status: u16, detail: &str) -> Self {
        Self::problems(status, detail, &[])
    }

    /// With several reasons.
    pub fn problems(status: u16, detail: &str, errors: &[String]) -> Self {
        let problem = Problem {
            r#type: "about:blank",
            title: title(status),
            status,
            detail,
            errors,
        };
        Self::of(status, PROBLEM, &problem)
    }

    pub fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        Self {
            header: Some((name, value.into())),
            ..self
        }
    }

    fn of(status: u16, content_type: &'static str, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(mut body) => {
                body.push(b'\n');
                Self {
                    status,
                    content_type,
                    header: None,
                    body,
                }
            }
            // Only maps with keys that are no text could fail.
            Err(error) => Self {
                status: 500,
                content_type: "text/plain",
                header: None,
                body: error.to_string().into_bytes(),
            },
        }
    }

    #[cfg(test)]
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn send(self, io: &mut Io, conn: ConnId) {
        let own = self.header.iter();
        let own = own.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let headers = [
            (b"Content-Type".as_slice(), self.content_type.as_bytes()),
            (b"Cache-Control", b"no-store"),
        ];
        let headers = headers.into_iter().chain(own);
        io.respond(conn, self.status, None, headers, &self.body);
    }
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        422 => "Unprocessable Content",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
