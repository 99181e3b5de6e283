//! What goes to an application and comes back, the same for all.

use baton_handoff::front::Slot;
use baton_handoff::reply;
use baton_handoff::request::{self, Field};
use baton_handoff::ring::End;
use baton_handoff::slot::Generation;
use baton_server::{ConnId, Io, Request};

/// Before an I/O thread sleeps, and has the applications knock, it lets them run a little, as Baton's does.
pub const YIELDS_BEFORE_SLEEP: u32 = 5;

pub const BODY: &[u8] = b"Hello, world!";

pub fn headers(work: &[u8]) -> [(&[u8], &[u8]); 2] {
    [
        (b"Content-Type", b"text/html; charset=UTF-8"),
        (b"X-Work", work),
    ]
}

pub fn encode(bytes: &mut Vec<u8>, request: &Request<'_>) {
    let mut fields: [&[u8]; Field::COUNT] = [b""; Field::COUNT];
    fields[Field::Target as usize] = request.head.path.as_bytes();
    bytes.clear();
    request::encode(bytes, 0, &fields, 0, [].into_iter()).expect("the parser's limit is lower");
}

/// Whether the slot's thread has finished this request.
pub fn is_finished(slot: Slot<'_>, generation: Generation) -> bool {
    let progress = slot
        .progress(generation, 0)
        .expect("our own processes tell the truth");
    progress.is_some_and(|progress| progress.end == End::Finished)
}

/// Passes a finished reply on.
pub fn pass_on(
    io: &mut Io,
    conn: ConnId,
    slot: Slot<'_>,
    generation: Generation,
    copy: &mut Vec<u8>,
) {
    let progress = slot
        .progress(generation, 0)
        .expect("our own processes tell the truth");
    let Some(progress) = progress else { return };
    copy.clear();
    slot.copy(0, progress.written as usize, copy);
    let whole = |bytes: &[u8]| reply::claimed_length(bytes.first_chunk().copied()?);
    let (head, body) = copy.split_at(whole(copy).expect("a length"));
    let head = reply::Head::decode(head).expect("a head");
    io.respond(conn, head.status, None, head.headers(), body);
}
