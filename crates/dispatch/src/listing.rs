//! The threads of an app, for people who want to see them.

use crate::dispatcher::{Dispatcher, State};

/// A thread as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    pub thread: T,
    pub is_busy: bool,
    /// Since when it is busy with this request, or idle; 0 before its first [`Dispatcher::release`].
    pub since_ms: u64,
}

impl<T: Clone, R> Dispatcher<T, R> {
    /// Appends all threads to `out`: the idle ones, longest idle first, then those that are busy. With room in `out` for
    /// all, those of processes that leave among them, nothing is allocated.
    pub fn list(&self, out: &mut Vec<Listed<T>>) {
        let idle = self.idle.iter().filter_map(|(id, since_ms)| {
            let thread = self.get(id)?;
            Some(Listed {
                thread: thread.thread.clone(),
                is_busy: false,
                since_ms,
            })
        });
        out.extend(idle);
        let threads = self
            .threads
            .iter()
            .filter_map(|(_, thread)| thread.as_ref());
        let busy = threads.filter_map(|thread| match thread.state {
            State::Idle => None,
            State::Busy { since_ms } => Some(Listed {
                thread: thread.thread.clone(),
                is_busy: true,
                since_ms,
            }),
        });
        out.extend(busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn all_are_listed_with_what_they_do() {
        let mut dispatcher = Dispatcher::<&str, u32>::new(Limits {
            queue_len_max: 4,
            queue_wait_ms_max: 100,
            rotate_ms: 1000,
            stand_by: false,
        });
        let ids = ["a", "b", "c"].map(|name| dispatcher.add(name));
        dispatcher.release(ids[0], 0, 0, 5);
        dispatcher.release(ids[1], 0, 0, 6);
        dispatcher.submit(1, 0, 7);
        let mut listed = Vec::new();
        dispatcher.list(&mut listed);
        let of = |thread, is_busy, since_ms| Listed {
            thread,
            is_busy,
            since_ms,
        };
        let expected = [of("a", false, 5), of("b", true, 7), of("c", true, 0)];
        assert_eq!(listed, expected);
    }
}
