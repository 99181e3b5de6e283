//! The control sockets: descriptors and the few messages that do not concern a request's bytes.
//!
//! All are `SOCK_SEQPACKET` pairs made by the front, one per zygote and one per app process. A
//! message is a kind byte, two numbers, and for settings a text; descriptors ride along.
//!
//! ```text
//!   front → zygote    Settings, Fork (with the descriptors of an app process), Stop
//!   zygote → front    Ready, Failed (with the reason), ForkFailed
//!   front → process   Body (with the descriptor of a spooled request body)
//!   process → front   Hello; Ready, if the hello said that it boots first; Restart (with the reason).
//!                     The kernel vouches for the sender's pid.
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt::set_socket_passcred,
};

/// A message is at most this long, text included.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// down, up, flags, the process's control socket, its stderr, a doorbell, and an eventfd for each
/// of at most 64 I/O threads.
pub const DESCRIPTORS_MAX: usize = 72;

/// The reason that goes with [`Kind::Restart`] is at most this long.
pub const RESTART_REASON_BYTES_MAX: usize = 200;
/// In [`Message::b`] of a hello: the process boots before it can serve, and says Ready when it has.
pub const BOOTS_FIRST: u64 = 1;
/// In [`Message::a`] of a wish for a restart: of all the app's pools, not only of the process's own.
pub const WHOLE_APP: u64 = 1;

const FIXED_BYTES: usize = 1 + 8 + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Settings = 1,
    Fork,
    Stop,
    Ready,
    Failed,
    ForkFailed,
    Hello,
    Body,
    /// The app's code is to be loaded anew: by a new zygote, for all its processes.
    Restart,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        [
            Settings, Fork, Stop, Ready, Failed, ForkFailed, Hello, Body, Restart,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    /// Fork, ForkFailed: the process's number. Body: the slot. Restart: [`WHOLE_APP`] or 0.
    pub a: u64,
    /// ForkFailed: errno. Body: the generation. Fork: 1 with a doorbell. Hello: [`BOOTS_FIRST`] or 0.
    pub b: u64,
    pub text: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
    /// The sender, as the kernel says; only on sockets that ask for it.
    pub pid: Option<rustix::process::Pid>,
}

/// A connected pair: (front's end, which learns the sender's pid; the other's end).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (front, other) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_passcred(&front, true)?;
    Ok((front, other))
}

/// Of what is sent to this end from now on only these kinds arrive, with a reason of at most [`RESTART_REASON_BYTES_MAX`]. The
/// rest is dropped, and what is sent along is let go by the sender. Descriptors may still come with these: [`look`] before
/// they are received.
pub fn hear_only(socket: BorrowedFd<'_>, kinds: &[Kind]) -> io::Result<()> {
    let is_kind = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let keep = (FIXED_BYTES + RESTART_REASON_BYTES_MAX) as u32;
    // A message without a kind is dropped here.
    let mut program = vec![instruction(
        libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
        0,
        0,
    )];
    for (n, kind) in kinds.iter().enumerate() {
        // To the last instruction, over the other kinds and the one that drops.
        let to_keep = (kinds.len() - n) as u8;
        program.push(instruction(is_kind, *kind as u32, to_keep));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
    program.push(instruction(libc::BPF_RET | libc::BPF_K, keep, 0));
    filter(socket, &mut program)
}

/// Nothing that is sent to this end arrives any more, and what is sent along is let go by the sender: a descriptor may be
/// of a kind that is slow to close. That the other end is closed is still told.
pub fn hear_no_more(socket: BorrowedFd<'_>) -> io::Result<()> {
    hear_only(socket, &[])
}

fn instruction(code: u32, k: u32, jump_if_true: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: jump_if_true,
        jf: 0,
        k,
    }
}

/// Has the kernel run a classic BPF program over each message that comes: it returns how many bytes to keep, and 0 drops
/// the message. It takes the place of the one before. See socket(7), `SO_ATTACH_FILTER`.
fn filter(socket: BorrowedFd<'_>, instructions: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `program` and its instructions live until the call returns; the kernel copies and checks them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether nothing lies in the front's end of a pair.
pub fn is_empty(socket: BorrowedFd<'_>) -> bool {
    !pass_over(socket, RecvFlags::PEEK)
}

/// Takes out all that lies in the front's end of a pair and drops it, descriptors included: that may take as long as their
/// sender likes. To be called after [`hear_no_more`], or it could go on for ever.
pub fn drain(socket: BorrowedFd<'_>) {
    while pass_over(socket, RecvFlags::empty()) {}
}

/// Whether there was a message, which need not be one of ours. One without a byte looks like an end, but has a sender.
fn pass_over(socket: BorrowedFd<'_>, flags: RecvFlags) -> bool {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut byte = [0; 1];
    let mut receive = || {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, flags))
    };
    let received = match receive() {
        // The other end was closed with messages unread. That is told once, and before what lies here.
        Err(rustix::io::Errno::CONNRESET) => receive(),
        received => received,
    };
    received.is_ok_and(|received| received.bytes > 0) || ancillary.drain().count() > 0
}

/// Sends one message. With `wait` false, `WouldBlock` if the peer does not read.
pub fn send(
    socket: BorrowedFd<'_>,
    kind: Kind,
    (a, b): (u64, u64),
    text: &[u8],
    descriptors: &[BorrowedFd<'_>],
    wait: bool,
) -> io::Result<()> {
    let mut fixed = [0; FIXED_BYTES];
    fixed[0] = kind as u8;
    fixed[1..9].copy_from_slice(&a.to_ne_bytes());
    fixed[9..17].copy_from_slice(&b.to_ne_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL
        | if wait {
            SendFlags::empty()
        } else {
            SendFlags::DONTWAIT
        };
    let parts = [IoSlice::new(&fixed), IoSlice::new(text)];
    rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, flags))?;
    Ok(())
}

/// Receives one message. `None`: the other end is closed. `WouldBlock` if `wait` is false and
/// there is none; `InvalidData` for what is no message, or one that was cut off.
pub fn receive(socket: BorrowedFd<'_>, wait: bool) -> io::Result<Option<Message>> {
    let flags = if wait {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    };
    receive_with(socket, flags)
}

/// As [`receive`] without waiting, and the message stays where it is. Its descriptors are copies: to drop them is not to
/// close what they stand for, which may take as long as the sender likes.
pub fn look(socket: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    receive_with(socket, RecvFlags::DONTWAIT | RecvFlags::PEEK)
}

fn receive_with(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Option<Message>> {
    let mut fixed = [0; FIXED_BYTES];
    let mut text = Vec::new();
    // Peeking tells the length, so that short messages cost no large buffer.
    let mut probe = [0; FIXED_BYTES];
    let (_, len) = rustix::io::retry_on_intr(|| {
        rustix::net::recv(
            socket,
            &mut probe[..],
            flags | RecvFlags::PEEK | RecvFlags::TRUNC,
        )
    })?;
    if len > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    text.resize(len.saturating_sub(FIXED_BYTES), 0);
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut fixed), IoSliceMut::new(&mut text)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            socket,
            &mut parts,
            &mut ancillary,
            flags | RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let (mut descriptors, mut pid) = (Vec::new(), None);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(received) => descriptors.extend(received),
            RecvAncillaryMessage::ScmCredentials(credentials) => pid = Some(credentials.pid),
            _ => {}
        }
    }
    if received.bytes == 0 {
        // Every message has a sender, also an empty one; only the end has none.
        return match pid {
            None => Ok(None),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        };
    }
    let kind = Kind::from_byte(fixed[0]).filter(|_| received.bytes == len && len >= FIXED_BYTES);
    let kind = kind.ok_or(io::ErrorKind::InvalidData)?;
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&fixed[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    let (a, b) = (number(1), number(9));
    Ok(Some(Message {
        kind,
        a,
        b,
        text,
        descriptors,
        pid,
    }))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors_and_sender() {
        let (front, other) = pair().expect("socketpair");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let descriptors = [null.as_fd(), null.as_fd()];
        send(
            other.as_fd(),
            Kind::Failed,
            (7, 8),
            b"no such script",
            &descriptors,
            true,
        )
        .expect("sent");
        let message = receive(front.as_fd(), false)
            .expect("received")
            .expect("not closed");
        assert_eq!((message.kind, message.a, message.b), (Kind::Failed, 7, 8));
        assert_eq!(message.text, b"no such script");
        assert_eq!(message.descriptors.len(), 2);
        assert_eq!(message.pid, Some(rustix::process::getpid()));
    }

    #[test]
    fn a_deaf_end_hears_the_end_only() {
        let (front, other) = pair().expect("socketpair");
        hear_no_more(front.as_fd()).expect("a filter");
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        let sent = send(
            other.as_fd(),
            Kind::Hello,
            (1, 0),
            &[],
            &[writer.as_fd()],
            false,
        );
        assert!(sent.is_ok());
        drop(writer);
        // Nobody holds the descriptor that was sent along.
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
        let nothing = receive(front.as_fd(), false)
            .map(|_| ())
            .map_err(|e| e.kind());
        assert_eq!(nothing, Err(io::ErrorKind::WouldBlock));
        send(front.as_fd(), Kind::Body, (1, 2), &[], &[], false).expect("sent");
        assert!(receive(other.as_fd(), false).expect("received").is_some());
        drop(other);
        assert!(receive(front.as_fd(), false).expect("an end").is_none());
    }

    #[test]
    fn only_what_is_listened_to_is_heard() {
        let (front, other) = pair().expect("socketpair");
        let say = |kind, text: &[u8]| send(other.as_fd(), kind, (0, 0), text, &[], false);
        let say_all = || {
            for kind in [Kind::Hello, Kind::Ready, Kind::Body, Kind::Restart] {
                say(kind, b"").expect("sent");
            }
            for raw in [b"".as_slice(), b"\xff", &[0xee; 3000]] {
                rustix::net::send(&other, raw, SendFlags::empty()).expect("sent");
            }
        };
        let heard = || -> Vec<Message> {
            std::iter::from_fn(|| receive(front.as_fd(), false).ok()?).collect()
        };
        let kinds = || -> Vec<Kind> { heard().iter().map(|message| message.kind).collect() };
        hear_only(front.as_fd(), &[Kind::Restart]).expect("a filter");
        say_all();
        assert_eq!(kinds(), [Kind::Restart]);
        say(Kind::Restart, &[b'x'; 5000]).expect("sent");
        assert_eq!(heard()[0].text, [b'x'; RESTART_REASON_BYTES_MAX]);
        // A filter takes the place of the one before.
        hear_no_more(front.as_fd()).expect("a filter");
        say_all();
        assert_eq!(kinds(), []);
        hear_only(front.as_fd(), &[Kind::Ready, Kind::Restart]).expect("a filter");
        say_all();
        assert_eq!(kinds(), [Kind::Ready, Kind::Restart]);
    }

    #[test]
    fn what_lies_there_is_found_behind_the_end_of_one_that_did_not_read() {
        let (front, other) = pair().expect("socketpair");
        send(front.as_fd(), Kind::Body, (1, 2), &[], &[], false).expect("sent");
        send(other.as_fd(), Kind::Restart, (0, 0), b"", &[], false).expect("sent");
        drop(other);
        assert!(!is_empty(front.as_fd()));
        drain(front.as_fd());
        assert!(is_empty(front.as_fd()));
    }

    #[test]
    fn what_lies_unread_can_be_dropped() {
        let (front, other) = pair().expect("socketpair");
        assert!(is_empty(front.as_fd()));
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        rustix::net::send(&other, b"", SendFlags::empty()).expect("sent");
        let with = [writer.as_fd()];
        let long = vec![0; MESSAGE_BYTES_MAX];
        send(other.as_fd(), Kind::Restart, (0, 0), &long, &with, true).expect("sent");
        drop((writer, other));
        hear_no_more(front.as_fd()).expect("a filter");
        assert!(!is_empty(front.as_fd()));
        drain(front.as_fd());
        assert!(is_empty(front.as_fd()));
        // Nobody holds the descriptor that was sent along.
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    }

    #[test]
    fn garbage_and_ends_are_told_apart() {
        let (front, other) = pair().expect("socketpair");
        let nothing = receive(front.as_fd(), false)
            .map(|_| ())
            .map_err(|e| e.kind());
        assert_eq!(nothing, Err(io::ErrorKind::WouldBlock));
        rustix::net::send(
            &other,
            b"\xffgarbage that is long enough",
            SendFlags::empty(),
        )
        .expect("sent");
        let garbage = receive(front.as_fd(), false)
            .map(|_| ())
            .map_err(|e| e.kind());
        assert_eq!(garbage, Err(io::ErrorKind::InvalidData));
        rustix::net::send(&other, b"", SendFlags::empty()).expect("sent");
        let empty = receive(front.as_fd(), false)
            .map(|_| ())
            .map_err(|e| e.kind());
        assert_eq!(empty, Err(io::ErrorKind::InvalidData));
        drop(other);
        assert!(receive(front.as_fd(), false).expect("an end").is_none());
    }
}
