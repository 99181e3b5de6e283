//! A client that shares no code with the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub trait Stream: Read + Write {
    fn shut_write(&self);
    fn wait_at_most(&self, ms: u64);
}

impl Stream for TcpStream {
    fn shut_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn wait_at_most(&self, ms: u64) {
        self.set_read_timeout(Some(Duration::from_millis(ms)))
            .unwrap();
    }
}

impl Stream for UnixStream {
    fn shut_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn wait_at_most(&self, ms: u64) {
        self.set_read_timeout(Some(Duration::from_millis(ms)))
            .unwrap();
    }
}

pub struct Client {
    pub stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn tcp(address: SocketAddr) -> Client {
        Client::over(Box::new(TcpStream::connect(address).unwrap()))
    }

    pub fn of(stream: TcpStream) -> Client {
        Client::over(Box::new(stream))
    }

    pub fn unix(path: &Path) -> Client {
        Client::over(Box::new(UnixStream::connect(path).unwrap()))
    }

    /// With a small window, so that it is full soon.
    pub fn slow(address: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&fd, 8 * 1024).unwrap();
        connect(&fd, &address).unwrap();
        Client::over(Box::new(TcpStream::from(fd)))
    }

    fn over(stream: Box<dyn Stream>) -> Client {
        stream.wait_at_most(5_000);
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub fn get(&mut self, path: &str) -> &mut Client {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    /// False at the end.
    fn fill(&mut self) -> bool {
        let mut part = [0; 16 * 1024];
        match self.stream.read(&mut part) {
            Ok(count) => {
                self.buffer.extend_from_slice(&part[..count]);
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8(self.buffer[..at].to_vec()).unwrap();
                self.buffer.drain(..at + 2);
                return line;
            }
            assert!(
                self.fill(),
                "end in a line: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(
                self.fill(),
                "end after {} of {count} bytes",
                self.buffer.len()
            );
        }
        self.buffer.drain(..count).collect()
    }

    pub fn head(&mut self) -> Reply {
        let mut head = self.line();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        loop {
            let line = self.line();
            if line.is_empty() {
                return Reply {
                    status,
                    head,
                    body: Vec::new(),
                };
            }
            head.push('\n');
            head.push_str(&line);
        }
    }

    pub fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        if reply.status < 200 || reply.status == 204 || reply.status == 304 {
            return reply;
        }
        if let Some(length) = reply.header("content-length") {
            reply.body = self.exactly(length.parse().unwrap());
        } else if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                reply.body.extend_from_slice(&chunk);
            }
        } else {
            reply.body = self.rest();
        }
        reply
    }

    /// None: the last one.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line(), 16).unwrap();
        let chunk = self.exactly(length);
        assert_eq!(self.line(), "");
        (length > 0).then_some(chunk)
    }

    /// All until the end.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(
            rest.is_empty(),
            "not a bare end: {:?}",
            String::from_utf8_lossy(&rest)
        );
    }

    pub fn assert_silent(&mut self, ms: u64) {
        assert!(self.buffer.is_empty());
        self.stream.wait_at_most(ms);
        let mut byte = [0; 64];
        let read = self.stream.read(&mut byte);
        self.stream.wait_at_most(5_000);
        let kind = read.map_err(|error| error.kind());
        assert!(
            matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "{kind:?}"
        );
    }
}
