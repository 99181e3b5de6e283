//! One request to the admin API, and its reply: HTTP/1.1 over a connection of its own.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::table::readable;
use crate::admin::place::At;
use crate::admin::token::Token;

/// A reload may take so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Ten thousand threads at long requests.
const REPLY_BYTES_MAX: u64 = 32 * 1024 * 1024;

pub struct Client {
    pub at: At,
    pub token: Option<Token>,
}

/// In JSON.
pub struct Reply {
    pub raw: Vec<u8>,
    pub value: Value,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Client {
    /// # Errors
    /// It cannot be reached, or says that something is wrong: what, in words.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Reply, String> {
        let mut target = path.to_owned();
        if !parameters.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            target = format!("{path}?{}", query.extend_pairs(parameters).finish());
        }
        let authorization = self.token.as_ref().map_or(String::new(), |token| {
            format!("Authorization: Bearer {}\r\n", token.as_str())
        });
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{authorization}\r\n"
        );
        let bytes = self
            .exchange(request.as_bytes())
            .map_err(|error| format!("no answer from {}: {error}", self.at))?;
        let (status, body) =
            parse(&bytes).ok_or_else(|| format!("{} is no admin API of Baton's", self.at))?;
        match serde_json::from_slice::<Value>(body) {
            Ok(value) if (200..300).contains(&status) => Ok(Reply {
                raw: body.to_owned(),
                value,
            }),
            Ok(problem) => Err(explain(status, &problem)),
            Err(_) => Err(format!(
                "{}: status {status}: {}",
                self.at,
                readable(&String::from_utf8_lossy(body))
            )),
        }
    }

    fn exchange(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream: Box<dyn Stream> = match &self.at {
            At::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            At::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, Duration::from_secs(10))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        };
        stream.write_all(request)?;
        let mut bytes = Vec::new();
        stream.take(REPLY_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The status and the body. `None`: it is no whole reply of a known length.
fn parse(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).ok()? else {
        return None;
    };
    let body = bytes.get(head_bytes..)?;
    let mut headers = head.headers.iter();
    let length = headers.find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value).ok()?.parse().ok()?;
    (body.len() == length).then_some((head.code?, body))
}

/// Problem details (RFC 9457).
fn explain(status: u16, problem: &Value) -> String {
    let text = |name: &str| readable(problem[name].as_str().unwrap_or_default());
    let mut lines = vec![match (status, text("detail")) {
        (401, _) => "the server asks for its token: --admin-token-file FILE".into(),
        (_, detail) if detail.is_empty() => format!("status {status}"),
        (_, detail) => detail,
    }];
    let errors = problem["errors"].as_array().into_iter().flatten();
    lines.extend(errors.filter_map(Value::as_str).map(readable));
    lines.join("\nbaton: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_replies_count() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(good), Some((200, &b"{}"[..])));
        for bad in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            b"SSH-2.0-x\r\n",
        ] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn problems_are_told_in_words() {
        let problem = serde_json::json!({"detail": "It is so.", "errors": ["one", "t\u{1b}wo"]});
        assert_eq!(explain(422, &problem), "It is so.\nbaton: one\nbaton: two");
        assert_eq!(explain(500, &Value::Null), "status 500");
        assert!(explain(401, &problem).contains("--admin-token-file"));
    }
}
