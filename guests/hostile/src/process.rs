//! What an app process was given, and its honest work.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use baton_handoff::app::{Body, ReplyWriter, Segment, Taken};
use baton_handoff::control::{self, Kind, Message};
use baton_handoff::reply;
use baton_handoff::request::{Field, Head};
use baton_handoff::ring::End;
use rustix::mm::ProtFlags;
use rustix::process::Pid;

use crate::raw::{Raw, UP_BYTES};

/// The one thread.
const THREAD: u32 = 0;

pub struct App {
    pub segment: Segment,
    pub up: Raw,
    pub up_file: OwnedFd,
    pub down_file: OwnedFd,
    pub flags_file: OwnedFd,
    pub knockers: Vec<OwnedFd>,
    control: Mutex<Option<OwnedFd>>,
    /// Spooled bodies of the request that stands by, which came before this one's, with slot and generation.
    early: Mutex<Vec<(u64, u64, OwnedFd)>>,
    front: Option<Pid>,
}

impl App {
    pub fn new(message: Message, front: Option<Pid>) -> io::Result<Self> {
        let mut descriptors = message.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(io::ErrorKind::UnexpectedEof);
        let (down_file, up_file, flags_file) = (next()?, next()?, next()?);
        let (control, log) = (next()?, next()?);
        rustix::stdio::dup2_stdout(&log)?;
        rustix::stdio::dup2_stderr(&log)?;
        let knockers: Vec<OwnedFd> = descriptors.collect();
        let for_segment = knockers
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()?;
        let (down, up, flags) = (down_file.as_fd(), up_file.as_fd(), flags_file.as_fd());
        Ok(Self {
            segment: Segment::map(down, up, flags, for_segment, None)?,
            up: Raw::map(up, UP_BYTES, ProtFlags::READ | ProtFlags::WRITE)?,
            up_file,
            down_file,
            flags_file,
            knockers,
            control: Mutex::new(Some(control)),
            early: Mutex::default(),
            front,
        })
    }

    /// For children, which nobody kills: sleeps, but not for longer than the front lives.
    pub fn sleep_while_front_lives(&self, bound: Duration) {
        let start = Instant::now();
        let lives = || {
            let found = self.front.map(rustix::process::test_kill_process);
            !matches!(found, None | Some(Err(rustix::io::Errno::SRCH)))
        };
        while start.elapsed() < bound && lives() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn with_control<R>(
        &self,
        act: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        match &*self.control.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(control) => act(control.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub fn close_control(&self) {
        self.control
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    pub fn hello(&self, number: u64) -> io::Result<()> {
        self.say(Kind::Hello, (number, 0))
    }

    pub fn say(&self, kind: Kind, numbers: (u64, u64)) -> io::Result<()> {
        self.with_control(|control| control::send(control, kind, numbers, &[], &[], true))
    }

    /// Sleeps until there is a request. `None`: the front has said stop.
    pub fn accept(&self) -> Option<Taken> {
        loop {
            if let Some(taken) = self.segment.take(THREAD, 0) {
                return Some(taken);
            }
            if self.segment.is_stopped(THREAD) {
                return None;
            }
            self.segment.sleep_until(THREAD, || self.is_wanted());
        }
    }

    /// Whether there is a request, or a stop.
    pub fn is_wanted(&self) -> bool {
        self.segment.has_offer(THREAD) || self.segment.is_stopped(THREAD)
    }

    pub fn is_stopped(&self) -> bool {
        self.segment.is_stopped(THREAD)
    }

    // ---- honest work -------------------------------------------------------------------------

    pub fn serve_honestly(&self, requests: u64) {
        for _ in 0..requests {
            let Some(taken) = self.accept() else { return };
            self.answer(taken);
        }
    }

    /// The token as it came by query, header and body, then as often as `size` asks for.
    fn answer(&self, taken: Taken) {
        let mut writer = ReplyWriter::new(taken);
        let Some((head, body)) = self.segment.request(taken) else {
            return writer.publish(&self.segment, End::Abandoned);
        };
        let token = query(&head, "token").unwrap_or_default();
        let by_header = (0..head.header_count())
            .filter_map(|index| head.header(index))
            .find(|(name, _)| name.eq_ignore_ascii_case(b"x-token"))
            .map_or(Vec::new(), |(_, value)| value.to_vec());
        let by_body = match body {
            Body::Memory(bytes) => bytes.to_vec(),
            Body::File(len) => self.spooled(taken, len).unwrap_or_default(),
        };
        // A body is the token again and again: nothing else may be in it.
        let odd = by_body
            .chunks(token.len().max(1))
            .filter(|piece| *piece != &token.as_bytes()[..piece.len()])
            .count();
        let mut reply = Vec::new();
        let headers = [
            ("Content-Type", "text/plain"),
            ("X-Guest", "honest"),
            ("X-Token", token.as_str()),
        ];
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        if reply::encode(&mut reply, 200, headers).is_err() {
            return writer.publish(&self.segment, End::Abandoned);
        }
        let text = format!(
            "query={token}\nheader={}\nbody={} {odd}\n",
            String::from_utf8_lossy(&by_header),
            by_body.len()
        );
        reply.extend_from_slice(text.as_bytes());
        let size = query(&head, "size")
            .and_then(|size| size.parse().ok())
            .unwrap_or(0);
        let line = format!("{token}\n");
        reply.extend(line.bytes().cycle().take(size / line.len() * line.len()));
        self.write(taken, &mut writer, &reply);
        writer.publish(&self.segment, End::Finished);
    }

    /// Waits for room until the client has gone.
    pub fn write(&self, taken: Taken, writer: &mut ReplyWriter, mut bytes: &[u8]) {
        loop {
            let len = writer.copy_in(&self.segment, bytes);
            bytes = &bytes[len..];
            if bytes.is_empty() || self.segment.is_client_gone(taken) {
                return;
            }
            writer.publish(&self.segment, End::Open);
            self.segment.sleep_until(THREAD, || {
                writer.room(&self.segment) > 0 || self.segment.is_client_gone(taken)
            });
        }
    }

    /// The body that came as a file.
    fn spooled(&self, taken: Taken, len: u64) -> io::Result<Vec<u8>> {
        let (slot, generation) = (u64::from(taken.slot), u64::from(taken.generation.bits()));
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let at = early
            .iter()
            .position(|(a, b, _)| (*a, *b) == (slot, generation));
        let file = match at {
            Some(at) => early.swap_remove(at).2,
            None => self.with_control(|control| {
                loop {
                    let message =
                        control::receive(control, false)?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    let file = message.descriptors.into_iter().next();
                    let file = file.ok_or(io::ErrorKind::InvalidData)?;
                    if (message.a, message.b) == (slot, generation) {
                        return Ok(file);
                    }
                    early.retain(|(other, ..)| *other != message.a);
                    early.push((message.a, message.b, file));
                }
            })?,
        };
        let mut bytes = vec![0; len as usize];
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::from(file), &mut bytes, 0)?;
        Ok(bytes)
    }
}

fn query(head: &Head<'_>, name: &str) -> Option<String> {
    let query = String::from_utf8_lossy(head.field(Field::Query)).into_owned();
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.to_owned())
    })
}
