//! A strict HTTP/1.1 client for tests. It shares no code with the server: a bug in one must not hide in the other.
//!
//! Whatever a reply says about its own end is checked: one framing, exact lengths, whole chunks, no byte too many.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub use crate::reply::{Fault, Framing, Head, Reply};
use crate::reply::{broken, framing_of, parse_header, parse_status_line};

/// No reply of a journey may keep the client waiting longer than this, unless it says so with [`Conn::patience`].
const PATIENCE: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug)]
enum Rest {
    Done,
    Length(u64),
    /// Bytes left of the current chunk; None: a chunk header is due.
    Chunk(Option<u64>),
    UntilClose,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    stream: TcpStream,
    /// Received and not yet consumed.
    buffer: Vec<u8>,
    rest: Rest,
    closes: bool,
}

impl Conn {
    #[track_caller]
    pub fn open(addr: SocketAddr) -> Conn {
        match Conn::try_open(addr) {
            Ok(conn) => conn,
            Err(error) => panic!("cannot connect to {addr}: {error}"),
        }
    }

    pub fn try_open(addr: SocketAddr) -> io::Result<Conn> {
        Conn::over(TcpStream::connect_timeout(&addr, Duration::from_secs(10))?)
    }

    /// From another address of this machine.
    #[track_caller]
    pub fn open_from(source: IpAddr, addr: SocketAddr) -> Conn {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let from = || -> io::Result<Conn> {
            let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            bind(&fd, &SocketAddr::new(source, 0))?;
            connect(&fd, &addr)?;
            Conn::over(TcpStream::from(fd))
        };
        from().unwrap_or_else(|error| panic!("cannot connect from {source} to {addr}: {error}"))
    }

    fn over(stream: TcpStream) -> io::Result<Conn> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Conn {
            stream,
            buffer: Vec::new(),
            rest: Rest::Done,
            closes: false,
        })
    }

    /// How long one read or write may wait.
    pub fn patience(self, bound: Duration) -> Conn {
        self.stream
            .set_read_timeout(Some(bound))
            .expect("a timeout that is not zero");
        self.stream
            .set_write_timeout(Some(bound))
            .expect("a timeout that is not zero");
        self
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn local(&self) -> SocketAddr {
        self.stream
            .local_addr()
            .expect("a connected socket has an address")
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends the pieces with a pause between them.
    pub fn send_slowly<P: AsRef<[u8]>>(&mut self, pieces: &[P], pause: Duration) -> io::Result<()> {
        for (i, piece) in pieces.iter().enumerate() {
            if i > 0 {
                std::thread::sleep(pause);
            }
            self.send(piece)?;
        }
        Ok(())
    }

    /// FIN towards the server; replies can still be read.
    pub fn finish_sending(&self) {
        // The server may have closed already: then there is nothing left to say.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends the connection with RST, as a client that crashed does.
    pub fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
            .expect("SO_LINGER");
    }

    fn fill(&mut self) -> Result<usize, Fault> {
        let mut scratch = [0u8; 65536];
        loop {
            match self.stream.read(&mut scratch) {
                Ok(n) => {
                    self.buffer.extend_from_slice(&scratch[..n]);
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    return match e.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Fault::Silent),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(0),
                        _ => Err(Fault::Io(e)),
                    };
                }
            }
        }
    }

    /// The next line of the buffer without its CRLF. A bare CR or LF is an error.
    fn line(&mut self) -> Result<String, Fault> {
        loop {
            if let Some(at) = self.buffer.iter().position(|&b| b == b'\n') {
                if at == 0 || self.buffer[at - 1] != b'\r' {
                    return broken("a line ends in a bare LF");
                }
                let line: String = self.buffer[..at - 1]
                    .iter()
                    .map(|&b| char::from(b))
                    .collect();
                if line.contains('\r') || line.contains('\0') {
                    return broken(format!("control byte in line {line:?}"));
                }
                self.buffer.drain(..=at);
                return Ok(line);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return broken("line without end");
            }
            if self.fill()? == 0 {
                return Err(Fault::CutShort);
            }
        }
    }

    /// One head, interim or final. `method` is that of the request which it answers.
    fn one_head(&mut self, method: &str) -> Result<Head, Fault> {
        if self.buffer.is_empty() && self.fill()? == 0 {
            return Err(Fault::Closed);
        }
        let (minor_version, status, reason) = parse_status_line(&self.line()?)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            headers.push(parse_header(&line)?);
        }
        let framing = framing_of(minor_version, status, method, &headers)?;
        Ok(Head {
            minor_version,
            status,
            reason,
            headers,
            framing,
        })
    }

    /// Reads up to the end of the final head; interim replies are handed back beside it.
    pub fn head(&mut self, method: &str) -> Result<(Head, Vec<Head>), Fault> {
        assert!(
            matches!(self.rest, Rest::Done),
            "the body of the last reply was not read"
        );
        if self.closes {
            // After a reply that said close, more bytes are an answer to nothing.
            return if self.buffer.is_empty() && self.fill()? == 0 {
                Err(Fault::Closed)
            } else {
                broken("bytes after a reply that said close")
            };
        }
        let mut interim = Vec::new();
        let head = loop {
            let head = match self.one_head(method) {
                Err(Fault::Closed) if !interim.is_empty() => return Err(Fault::CutShort),
                other => other?,
            };
            if head.status >= 200 || head.status == 101 {
                break head;
            }
            interim.push(head);
        };
        self.rest = match head.framing {
            Framing::Empty | Framing::Length(0) => Rest::Done,
            Framing::Length(n) => Rest::Length(n),
            Framing::Chunked => Rest::Chunk(None),
            Framing::UntilClose => Rest::UntilClose,
        };
        self.closes = head.says_close();
        Ok((head, interim))
    }

    /// The next piece of the body, at most `max` bytes; None at its end.
    pub fn piece(&mut self, max: usize) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            match self.rest {
                Rest::Done => return Ok(None),
                Rest::Length(left) => {
                    let piece = self.take(left.min(max as u64) as usize)?;
                    let left = left - piece.len() as u64;
                    self.rest = if left == 0 {
                        Rest::Done
                    } else {
                        Rest::Length(left)
                    };
                    return Ok(Some(piece));
                }
                Rest::Chunk(Some(left)) => {
                    let piece = self.take(left.min(max as u64) as usize)?;
                    let left = left - piece.len() as u64;
                    self.rest = Rest::Chunk(Some(left));
                    if left == 0 {
                        if !self.line()?.is_empty() {
                            return broken("chunk data runs past its size");
                        }
                        self.rest = Rest::Chunk(None);
                    }
                    return Ok(Some(piece));
                }
                Rest::Chunk(None) => {
                    let line = self.line()?;
                    let digits = line.split(';').next().unwrap_or_default();
                    if digits.is_empty()
                        || digits.len() > 8
                        || !digits.bytes().all(|b| b.is_ascii_hexdigit())
                    {
                        return broken(format!("chunk size {line:?}"));
                    }
                    let size = u64::from_str_radix(digits, 16)
                        .map_err(|e| Fault::Broken(e.to_string()))?;
                    if size > 0 {
                        self.rest = Rest::Chunk(Some(size));
                        continue;
                    }
                    loop {
                        let trailer = self.line()?;
                        if trailer.is_empty() {
                            break;
                        }
                        parse_header(&trailer)?;
                    }
                    self.rest = Rest::Done;
                }
                Rest::UntilClose => {
                    if self.buffer.is_empty() && self.fill()? == 0 {
                        self.rest = Rest::Done;
                        continue;
                    }
                    let n = self.buffer.len().min(max);
                    return Ok(Some(self.buffer.drain(..n).collect()));
                }
            }
        }
    }

    /// At least one byte, at most `max`.
    fn take(&mut self, max: usize) -> Result<Vec<u8>, Fault> {
        if self.buffer.is_empty() && self.fill()? == 0 {
            return Err(Fault::CutShort);
        }
        let n = self.buffer.len().min(max);
        Ok(self.buffer.drain(..n).collect())
    }

    /// The rest of the body.
    pub fn body(&mut self) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(1 << 20)? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The whole next reply, to a request with this method.
    pub fn reply_to(&mut self, method: &str) -> Result<Reply, Fault> {
        let (head, interim) = self.head(method)?;
        let body = self.body()?;
        Ok(Reply {
            head,
            interim,
            body,
        })
    }

    pub fn reply(&mut self) -> Result<Reply, Fault> {
        self.reply_to("GET")
    }

    /// Sends a request and reads its reply.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Result<Reply, Fault> {
        let bytes = request.as_ref();
        // A server that refuses early may have closed its side: its answer is what counts.
        let sent = self.send(bytes);
        let method: String = bytes
            .iter()
            .take_while(|b| **b != b' ')
            .map(|&b| char::from(b))
            .collect();
        match (self.reply_to(&method), sent) {
            (Err(Fault::Closed), Err(e)) => Err(Fault::Io(e)),
            (reply, _) => reply,
        }
    }

    /// Asserts that the server closes the connection without another byte.
    #[track_caller]
    pub fn expect_close(&mut self) {
        assert!(
            self.buffer.is_empty(),
            "unexpected bytes: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        match self.fill() {
            Ok(0) => {}
            Ok(_) => panic!(
                "expected the end, got {:?}",
                String::from_utf8_lossy(&self.buffer)
            ),
            Err(fault) => panic!("expected the end, got: {fault}"),
        }
    }

    /// Whether nothing arrives for so long (bytes or the end of the connection would be something).
    pub fn stays_silent(&mut self, bound: Duration) -> bool {
        if !self.buffer.is_empty() {
            return false;
        }
        self.stream
            .set_read_timeout(Some(bound))
            .expect("a timeout that is not zero");
        let silent = matches!(self.fill(), Err(Fault::Silent));
        self.stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout that is not zero");
        silent
    }
}

/// GET on a connection of its own.
#[track_caller]
pub fn get(addr: SocketAddr, target: &str) -> Reply {
    send(
        addr,
        format!("GET {target} HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n"),
    )
}

/// Sends bytes on a connection of its own and reads one reply.
#[track_caller]
pub fn send(addr: SocketAddr, request: impl AsRef<[u8]>) -> Reply {
    match Conn::open(addr).ask(request.as_ref()) {
        Ok(reply) => reply,
        Err(fault) => {
            let start: String = String::from_utf8_lossy(request.as_ref())
                .chars()
                .take(200)
                .collect();
            panic!("{fault}, for {start:?}")
        }
    }
}

/// A request as bytes: Host and, with a body, Content-Length are added.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
    if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
        bytes.extend_from_slice(b"Host: test.example\r\n");
    }
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    let framed = headers.iter().any(|(n, _)| {
        n.eq_ignore_ascii_case("transfer-encoding") || n.eq_ignore_ascii_case("content-length")
    });
    if !framed && (!body.is_empty() || method == "POST" || method == "PUT") {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What the client makes of these bytes.
    fn read(bytes: &'static [u8], method: &str) -> Result<Reply, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let addr = listener.local_addr().expect("address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            stream.write_all(bytes).expect("write");
        });
        let reply = Conn::open(addr).reply_to(method);
        server.join().expect("server thread");
        reply
    }

    #[test]
    fn reads_each_framing() {
        let length =
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "GET").expect("length");
        assert_eq!(length.body, b"abc");
        let chunked = read(
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            "GET",
        )
        .expect("chunked");
        assert_eq!(
            (chunked.body.as_slice(), chunked.interim.len()),
            (b"abc".as_slice(), 1)
        );
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\n\r\nabc", "GET")
                .expect("until close")
                .body,
            b"abc"
        );
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD")
                .expect("head")
                .body,
            b""
        );
    }

    #[test]
    fn refuses_what_is_not_well_framed() {
        for bad in [
            b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n".as_slice(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
        ] {
            assert!(
                matches!(read(bad, "GET"), Err(Fault::Broken(_))),
                "{:?}",
                String::from_utf8_lossy(bad)
            );
        }
        assert!(matches!(
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "GET"),
            Err(Fault::CutShort)
        ));
        assert!(matches!(read(b"", "GET"), Err(Fault::Closed)));
    }
}
