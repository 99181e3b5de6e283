//! What happens to a connection that lets its time pass.

use crate::conn::Phase;
use crate::http1::Reject;
use crate::io_thread::IoThread;
use crate::service::Service;
use crate::slab::NEVER_MS;
use crate::timer::Entry;

const HEAD_TOO_SLOW: Reject = Reject::new(408, "the request head did not arrive in time");
const BODY_TOO_SLOW: Reject = Reject::new(408, "the request body did not arrive in time");

impl<S: Service> IoThread<S> {
    /// A wheel entry came by. It counts only if it is the one that is armed for its place, and it has expired only if
    /// the deadline has not moved meanwhile.
    pub(crate) fn timer(&mut self, entry: Entry, now_ms: u64) {
        let Some((armed_ms, occupant)) = self.io.conns.armed_mut(entry.index) else {
            return;
        };
        if *armed_ms != entry.due_ms {
            return;
        }
        *armed_ms = NEVER_MS;
        let Some((id, conn)) = occupant else { return };
        let deadline_ms = conn.deadline_ms;
        if deadline_ms > now_ms {
            if deadline_ms != NEVER_MS {
                self.io.set_deadline(id, deadline_ms);
            }
            return;
        }
        conn.deadline_ms = NEVER_MS;
        match conn.phase {
            Phase::Preface | Phase::Idle | Phase::Lingering => {
                self.io.remove(id);
            }
            Phase::Head => self.io.refuse(id, HEAD_TOO_SLOW),
            Phase::Body => self.io.refuse(id, BODY_TOO_SLOW),
            // The client does not read.
            Phase::Asked | Phase::Replying | Phase::Flushing => self.io.break_off(id, true),
            Phase::Complete | Phase::Broken => {}
        }
    }
}
