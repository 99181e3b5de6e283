//! What threads are working on, as their I/O threads tell it.

use baton_handoff::request::{Field, Head};

use super::{Client, Running};

/// What is told of a method or a target at most, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A running request.
#[derive(Clone, Debug)]
pub struct Work {
    /// The number of the process that has it, and the thread.
    pub process: u64,
    pub thread: u32,
    /// The thread has not come to it.
    pub stands_by: bool,
    pub request: u64,
    pub method: String,
    pub target: String,
    /// Nobody waits for the reply any more.
    pub client_gone: bool,
}

impl Work {
    pub fn of(running: &Running) -> Self {
        let pending = &running.pending;
        let head = pending.bytes.get(..pending.head_bytes).and_then(Head::new);
        let text = |field| head.map_or(String::new(), |head| shortened(head.field(field)));
        Self {
            process: running.place.process.number,
            thread: running.place.thread,
            stands_by: running.stands_by,
            request: pending.id,
            method: text(Field::Method),
            target: text(Field::Target),
            client_gone: running.client == Client::Gone,
        }
    }
}

fn shortened(bytes: &[u8]) -> String {
    match bytes.get(..TEXT_BYTES_MAX) {
        Some(first) if bytes.len() > TEXT_BYTES_MAX => {
            format!("{}\u{2026}", String::from_utf8_lossy(first))
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_targets_are_cut() {
        assert_eq!(shortened(b"/a?b"), "/a?b");
        let exact = vec![b'a'; TEXT_BYTES_MAX];
        assert_eq!(shortened(&exact).len(), TEXT_BYTES_MAX);
        let long = vec![b'a'; TEXT_BYTES_MAX + 1];
        let cut = format!("{}\u{2026}", "a".repeat(TEXT_BYTES_MAX));
        assert_eq!(shortened(&long), cut);
    }
}
