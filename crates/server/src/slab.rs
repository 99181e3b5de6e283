//! Where the connections of an I/O thread live: by index, with a generation that tells a late name from a current one.

use crate::conn::Conn;
use crate::service::ConnId;

/// 30 bits: the two above them say what kind of thing an epoll event is about.
const GENERATION_MAX: u32 = (1 << 30) - 1;

/// No wheel entry exists.
pub(crate) const NEVER_MS: u64 = u64::MAX;

struct Slot {
    generation: u32,
    /// The time of the wheel entry that counts for this place. It outlives the connection, so that connections that
    /// come and go do not pile up entries.
    armed_ms: u64,
    conn: Option<Conn>,
}

#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slab {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The name that the next `insert` will give.
    pub(crate) fn next_id(&self) -> ConnId {
        match self.free.last() {
            Some(index) => ConnId {
                index: *index,
                generation: self.slots[*index as usize].generation,
            },
            None => ConnId {
                index: self.slots.len() as u32,
                generation: 1,
            },
        }
    }

    pub(crate) fn insert(&mut self, conn: Conn) -> ConnId {
        let id = self.next_id();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].conn = Some(conn),
            None => self.slots.push(Slot {
                generation: 1,
                armed_ms: NEVER_MS,
                conn: Some(conn),
            }),
        }
        id
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation)?;
        let conn = slot.conn.take()?;
        slot.generation = if slot.generation == GENERATION_MAX {
            1
        } else {
            slot.generation + 1
        };
        self.free.push(id.index);
        Some(conn)
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation {
            slot.conn.as_ref()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.conn.as_mut()
        } else {
            None
        }
    }

    /// The connection that is at this place now, if there is one, and the time its wheel entry is armed for.
    pub(crate) fn armed_mut(
        &mut self,
        index: u32,
    ) -> Option<(&mut u64, Option<(ConnId, &mut Conn)>)> {
        let slot = self.slots.get_mut(index as usize)?;
        let id = ConnId {
            index,
            generation: slot.generation,
        };
        Some((
            &mut slot.armed_ms,
            slot.conn.as_mut().map(|conn| (id, conn)),
        ))
    }

    pub(crate) fn ids(&self) -> Vec<ConnId> {
        let named = |(index, slot): (usize, &Slot)| {
            slot.conn.as_ref()?;
            Some(ConnId {
                index: index as u32,
                generation: slot.generation,
            })
        };
        self.slots.iter().enumerate().filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::service::{Local, LocalAddress, Peer};

    fn conn() -> Conn {
        let socket = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let address = LocalAddress::Tcp(([127, 0, 0, 1], 80).into());
        Conn::new(
            socket,
            Peer::Unix,
            Local {
                listener: 0,
                address,
            },
            false,
            SystemClock.read(),
        )
    }

    #[test]
    fn late_names_find_nothing() {
        let mut slab = Slab::default();
        let first = slab.insert(conn());
        assert!(slab.get(first).is_some() && slab.remove(first).is_some());
        let expected = slab.next_id();
        let second = slab.insert(conn());
        assert_eq!((second, second.index), (expected, first.index));
        assert!(
            slab.get(first).is_none()
                && slab.get_mut(first).is_none()
                && slab.remove(first).is_none()
        );
        assert_eq!((slab.len(), slab.ids()), (1, vec![second]));
        assert_eq!(ConnId::from_bits(second.to_bits()), second);
    }

    /// 10,000 idle connections are to fit in a few megabytes.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Slot>() <= 512, "{}", size_of::<Slot>());
    }
}
