//! The access log: one line per reply, in the common, combined or JSON form.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use baton_server::Served;
use baton_server::http1::Version;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};

use crate::logs::{self, Reopen};
use crate::options::AccessFormat;

const COMMON_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
const JSON_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");

/// An open access log. What waits to be written is written when the last that has it open is dropped.
pub struct AccessLogFile {
    writer: NonBlocking,
    guard: Arc<WorkerGuard>,
    format: AccessFormat,
}

impl AccessLogFile {
    pub fn open(path: &Path, format: AccessFormat, reopen: &Reopen) -> Result<Self, String> {
        let (writer, guard) = logs::background_file(path, reopen)?;
        Ok(Self {
            writer,
            guard: Arc::new(guard),
            format,
        })
    }

    /// The same file, perhaps in another form.
    pub fn with(&self, format: AccessFormat) -> Self {
        Self {
            writer: self.writer.clone(),
            guard: self.guard.clone(),
            format,
        }
    }

    pub fn writer(&self) -> AccessLog {
        AccessLog::new(self.writer.clone(), self.format)
    }
}

/// One per I/O thread; all write to the same background thread.
#[derive(Clone)]
pub struct AccessLog {
    writer: NonBlocking,
    format: AccessFormat,
    second: i64,
    time: String,
    line: Vec<u8>,
}

impl AccessLog {
    pub fn new(writer: NonBlocking, format: AccessFormat) -> Self {
        Self {
            writer,
            format,
            second: i64::MIN,
            time: String::new(),
            line: Vec::new(),
        }
    }

    /// Never waits: if the disk is too slow the line is dropped.
    pub fn write(&mut self, served: &Served<'_>) {
        self.set_time(served.received_wall_ns.div_euclid(1_000_000_000));
        self.line.clear();
        // Writing to a Vec cannot fail.
        let _ = match self.format {
            AccessFormat::Common => self.write_common(served),
            AccessFormat::Combined => self.write_combined(served),
            AccessFormat::Json => self.write_json(served),
        };
        self.line.push(b'\n');
        let _ = self.writer.write_all(&self.line);
    }

    fn set_time(&mut self, second: i64) {
        if second == self.second {
            return;
        }
        self.second = second;
        let format = if self.format == AccessFormat::Json {
            JSON_TIME
        } else {
            COMMON_TIME
        };
        let time =
            OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        self.time = time.format(format).unwrap_or_default();
    }

    fn write_common(&mut self, served: &Served<'_>) -> std::io::Result<()> {
        let line = &mut self.line;
        match served.client {
            Some(client) => write!(line, "{}", client.to_canonical())?,
            None => line.extend_from_slice(b"-"),
        }
        write!(line, " - - [{}] \"", self.time)?;
        escape(line, served.method.as_bytes());
        line.push(b' ');
        escape(line, served.target.as_bytes());
        write!(
            line,
            " {}\" {} {}",
            version(served.version),
            served.status,
            served.body_bytes
        )
    }

    fn write_combined(&mut self, served: &Served<'_>) -> std::io::Result<()> {
        self.write_common(served)?;
        for text in [served.referer, served.user_agent] {
            self.line.extend_from_slice(b" \"");
            escape(&mut self.line, if text.is_empty() { b"-" } else { text });
            self.line.push(b'"');
        }
        Ok(())
    }

    fn write_json(&mut self, served: &Served<'_>) -> std::io::Result<()> {
        let line = &mut self.line;
        write!(line, "{{\"time\":\"{}\",\"remote\":\"", self.time)?;
        if let Some(client) = served.client {
            write!(line, "{}", client.to_canonical())?;
        }
        let texts: [(&str, &[u8]); 5] = [
            ("method", served.method.as_bytes()),
            ("target", served.target.as_bytes()),
            ("host", served.host.as_bytes()),
            ("referer", served.referer),
            ("user_agent", served.user_agent),
        ];
        for (name, text) in texts {
            write!(line, "\",\"{name}\":\"")?;
            escape_json(line, text);
        }
        write!(
            line,
            "\",\"version\":\"{}\",\"status\":{},\"bytes\":{},\"us\":{},\"complete\":{}}}",
            version(served.version),
            served.status,
            served.body_bytes,
            served.duration_ns / 1000,
            served.complete
        )
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    }
}

/// A client must not be able to forge a line, or write to the reader's terminal.
fn escape(line: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            0x20..=0x7e => line.push(*byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

fn escape_json(line: &mut Vec<u8>, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' | '\\' => line.extend_from_slice(&[b'\\', character as u8]),
            ' '..='~' => line.push(character as u8),
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    line.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_server::Peer;

    fn line(format: AccessFormat) -> String {
        let (writer, _guard) = tracing_appender::non_blocking(std::io::sink());
        let mut log = AccessLog::new(writer, format);
        log.write(&Served {
            status: 200,
            body_bytes: 13,
            complete: true,
            duration_ns: 1_500_000,
            received_wall_ns: 971_211_336_000_000_000,
            peer: Peer::Tcp(([192, 0, 2, 1], 5).into()),
            client: Some([127, 0, 0, 1].into()),
            listener: 0,
            method: "GET",
            target: "/a?b",
            version: Version::Http11,
            host: "h",
            referer: b"",
            user_agent: b"evil\"\n\x1b[2J",
        });
        String::from_utf8(log.line).expect("text")
    }

    #[test]
    fn the_forms_are_those_that_tools_know() {
        assert_eq!(
            line(AccessFormat::Common),
            "127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a?b HTTP/1.1\" 200 13\n"
        );
        let combined = line(AccessFormat::Combined);
        assert!(
            combined.ends_with("200 13 \"-\" \"evil\\\"\\x0a\\x1b[2J\"\n"),
            "{combined}"
        );
        let json = line(AccessFormat::Json);
        assert!(
            json.starts_with("{\"time\":\"2000-10-10T20:55:36Z\",\"remote\":\"127.0.0.1\""),
            "{json}"
        );
        assert!(
            json.contains("\"user_agent\":\"evil\\\"\\u000a\\u001b[2J\"")
                && json.contains("\"us\":1500")
        );
    }
}
