//! Which thread served a connection last: it gets the next request of that connection, if it is idle.

use baton_dispatch::ThreadId;
use baton_server::ConnId;

#[derive(Clone, Copy)]
struct Entry {
    conn: ConnId,
    /// The pool's number: each pool counts its own threads.
    pool: u32,
    thread: ThreadId,
}

/// By the connection's index. What an earlier connection has left in its place is not taken for the new one's.
#[derive(Default)]
pub struct LastThreads(Vec<Option<Entry>>);

impl LastThreads {
    pub fn of(&self, conn: ConnId, pool: u32) -> Option<ThreadId> {
        let entry = (*self.0.get(index(conn))?)?;
        (entry.conn == conn && entry.pool == pool).then_some(entry.thread)
    }

    pub fn set(&mut self, conn: ConnId, pool: u32, thread: ThreadId) {
        let index = index(conn);
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(Entry { conn, pool, thread });
    }
}

fn index(conn: ConnId) -> usize {
    conn.to_bits() as u32 as usize
}
