//! What applications write to standard error, line by line.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A longer line is cut into several.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Read at one go, so that a talkative app cannot keep the supervisor.
const READ_BYTES_MAX: usize = 64 * 1024;

/// A pipe's reading end.
pub struct Lines {
    pipe: OwnedFd,
    partial: Vec<u8>,
}

/// Whether there may be more later.
#[derive(PartialEq, Eq)]
pub enum Pipe {
    Open,
    Closed,
}

impl Lines {
    /// `pipe` does not block.
    pub fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe,
            partial: Vec::new(),
        }
    }

    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Hands each whole line that is there to `line`.
    pub fn read(&mut self, mut line: impl FnMut(&str)) -> Pipe {
        let mut buffer = [0; 4096];
        let mut total = 0;
        while total < READ_BYTES_MAX {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => {
                    self.end_line(&mut line);
                    return Pipe::Closed;
                }
                Ok(len) => {
                    total += len;
                    self.take(&buffer[..len], &mut line);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Pipe::Open,
            }
        }
        Pipe::Open
    }

    fn take(&mut self, bytes: &[u8], line: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.partial.len());
            self.partial
                .extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES_MAX {
                self.end_line(line);
            }
        }
    }

    fn end_line(&mut self, line: &mut impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.partial);
        let text = text.trim_end();
        if !text.is_empty() {
            line(text);
        }
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn lines_come_whole_and_bounded() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("pipe");
        let mut lines = Lines::new(reader);
        let mut seen = Vec::new();
        rustix::io::write(&writer, b"one\ntw").expect("written");
        assert!(lines.read(|line| seen.push(line.to_owned())) == Pipe::Open);
        rustix::io::write(&writer, b"o\n\nthree").expect("written");
        rustix::io::write(&writer, &[b'x'; LINE_BYTES_MAX]).expect("written");
        drop(writer);
        assert!(lines.read(|line| seen.push(line.to_owned())) == Pipe::Closed);
        assert_eq!(seen[..2], ["one", "two"]);
        assert!(seen[2].starts_with("three") && seen[2].len() == LINE_BYTES_MAX);
    }
}
