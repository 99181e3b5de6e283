//! A client of the admin API on its unix socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Admin {
    socket: PathBuf,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// As they came.
    pub head: String,
    pub body: String,
}

impl Admin {
    pub fn at(socket: &Path) -> Admin {
        Admin {
            socket: socket.to_owned(),
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    #[track_caller]
    pub fn ask(&self, method: &str, target: &str) -> Answer {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let bytes = self.send(request.as_bytes());
        Answer::parse(&bytes.expect("an answer"))
    }

    /// JSON that is no problem.
    #[track_caller]
    pub fn get(&self, target: &str) -> Value {
        let answer = self.ask("GET", target);
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        answer.json()
    }

    /// Any bytes; all that comes back until the end.
    pub fn send(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // It may have answered and closed before all is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            result => drop(result?),
        }
        Ok(answer)
    }
}

impl Answer {
    /// A whole reply of a known length, and nothing behind it.
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("an end of the head");
        let status = head.strip_prefix("HTTP/1.1 ").expect("HTTP/1.1");
        let answer = Answer {
            status: status[..3].parse().expect("a status"),
            head: head.to_owned(),
            body: body.to_owned(),
        };
        let length: usize = answer
            .header("content-length")
            .expect("a length")
            .parse()
            .expect("a number");
        assert_eq!(answer.body.len(), length, "{answer:?}");
        answer
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What is wrong, as problem details (RFC 9457) of the same status.
    #[track_caller]
    pub fn detail(&self) -> String {
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert_eq!(problem["type"], "about:blank", "{self:?}");
        assert!(problem["title"].is_string(), "{self:?}");
        problem["detail"].as_str().expect("a detail").to_owned()
    }
}
