//! What was found on a path, remembered for a while.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

/// Entries are looked through for old ones so often, and only while there are any.
const SWEEP_MS: u64 = 5_000;

/// What remembering something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub entries: usize,
    /// In memory.
    pub bytes: usize,
    pub descriptors: usize,
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            descriptors: self.descriptors + other.descriptors,
        }
    }

    fn is_within(self, max: Self) -> bool {
        self.entries <= max.entries
            && self.bytes <= max.bytes
            && self.descriptors <= max.descriptors
    }
}

/// One per I/O thread.
pub struct Cache<V> {
    entries: HashMap<OsString, Entry<V>>,
    used: Cost,
    max: Cost,
    keep_ms: u64,
    next_sweep_ms: u64,
}

struct Entry<V> {
    value: V,
    cost: Cost,
    until_ms: u64,
}

impl<V: Clone> Cache<V> {
    /// `keep_ms`: how long a value stands for what is on the disk; 0: not at all.
    pub fn new(max: Cost, keep_ms: u64) -> Self {
        Self {
            entries: HashMap::new(),
            used: Cost::default(),
            max,
            keep_ms,
            next_sweep_ms: u64::MAX,
        }
    }

    pub fn get(&self, path: &OsStr, now_ms: u64) -> Option<V> {
        let entry = self.entries.get(path)?;
        (now_ms < entry.until_ms).then(|| entry.value.clone())
    }

    /// Room is made by forgetting: first what is old, then everything. That costs those in use one look more.
    pub fn put(&mut self, path: &OsStr, value: V, cost: Cost, now_ms: u64) {
        if let Some(old) = self.entries.remove(path) {
            self.give_back(old.cost);
        }
        let cost = Cost { entries: 1, ..cost };
        if self.keep_ms == 0 || !cost.is_within(self.max) {
            return;
        }
        if !self.used.plus(cost).is_within(self.max) {
            self.forget_old(now_ms);
        }
        if !self.used.plus(cost).is_within(self.max) {
            self.entries.clear();
            self.used = Cost::default();
        }
        self.used = self.used.plus(cost);
        let until_ms = now_ms + self.keep_ms;
        let entry = Entry {
            value,
            cost,
            until_ms,
        };
        self.entries.insert(path.to_owned(), entry);
        self.next_sweep_ms = self.next_sweep_ms.min(now_ms + SWEEP_MS);
    }

    /// When [`Cache::sweep`] has something to do: a file that nobody asks for must not stay open.
    pub fn next_sweep_ms(&self) -> Option<u64> {
        (self.next_sweep_ms != u64::MAX).then_some(self.next_sweep_ms)
    }

    pub fn sweep(&mut self, now_ms: u64) {
        if now_ms >= self.next_sweep_ms {
            self.forget_old(now_ms);
            self.next_sweep_ms = match self.entries.is_empty() {
                true => u64::MAX,
                false => now_ms + SWEEP_MS,
            };
        }
    }

    fn forget_old(&mut self, now_ms: u64) {
        let mut used = Cost::default();
        self.entries.retain(|_, entry| {
            let is_fresh = now_ms < entry.until_ms;
            if is_fresh {
                used = used.plus(entry.cost);
            }
            is_fresh
        });
        self.used = used;
    }

    fn give_back(&mut self, cost: Cost) {
        self.used.entries -= cost.entries;
        self.used.bytes -= cost.bytes;
        self.used.descriptors -= cost.descriptors;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    const MAX: Cost = Cost {
        entries: 3,
        bytes: 100,
        descriptors: 2,
    };

    fn cost(bytes: usize, descriptors: usize) -> Cost {
        Cost {
            entries: 1,
            bytes,
            descriptors,
        }
    }

    fn has(cache: &Cache<u32>, name: &str, now_ms: u64) -> bool {
        cache.get(OsStr::new(name), now_ms).is_some()
    }

    fn put(cache: &mut Cache<u32>, name: &str, cost: Cost, now_ms: u64) {
        cache.put(OsStr::new(name), 0, cost, now_ms);
    }

    #[test]
    fn values_are_good_for_their_time() {
        let mut cache = Cache::new(MAX, 50);
        put(&mut cache, "a", cost(1, 0), 1000);
        assert!(has(&cache, "a", 1049) && !has(&cache, "a", 1050));
        let mut never = Cache::new(MAX, 0);
        put(&mut never, "a", cost(1, 0), 1000);
        assert!(!has(&never, "a", 1000));
    }

    #[test]
    fn every_bound_holds() {
        for (costs, kept) in [
            ([cost(1, 0), cost(1, 0), cost(1, 0)], 3),
            ([cost(40, 0), cost(40, 0), cost(40, 0)], 1),
            ([cost(0, 1), cost(0, 1), cost(0, 1)], 1),
            // One that alone is too much pushes nothing out.
            ([cost(1, 0), cost(1, 0), cost(101, 0)], 2),
        ] {
            let mut cache = Cache::new(MAX, 50);
            for (name, cost) in ["a", "b", "c"].iter().zip(costs) {
                put(&mut cache, name, cost, 0);
                assert!(cache.used.is_within(MAX));
            }
            assert_eq!(cache.entries.len(), kept, "{costs:?}");
        }
    }

    #[test]
    fn old_ones_make_room_first() {
        let mut cache = Cache::new(MAX, 50);
        put(&mut cache, "old", cost(60, 0), 0);
        put(&mut cache, "fresh", cost(30, 0), 40);
        put(&mut cache, "new", cost(30, 0), 60);
        assert!(has(&cache, "fresh", 60) && has(&cache, "new", 60));
        assert_eq!(
            cache.used,
            Cost {
                entries: 2,
                ..cost(60, 0)
            }
        );
    }

    #[test]
    fn replacing_gives_back() {
        let mut cache = Cache::new(MAX, 50);
        for now_ms in 0..10 {
            put(&mut cache, "a", cost(70, 2), now_ms);
        }
        assert_eq!(cache.used, cost(70, 2));
    }

    #[test]
    fn what_nobody_asks_for_is_let_go() {
        let mut cache = Cache::new(MAX, 50);
        assert_eq!(cache.next_sweep_ms(), None);
        let value = Rc::new(());
        cache.put(OsStr::new("a"), value.clone(), cost(1, 1), 0);
        let due_ms = cache.next_sweep_ms().expect("something to sweep");
        cache.sweep(due_ms - 1);
        assert_eq!(Rc::strong_count(&value), 2);
        cache.sweep(due_ms);
        assert_eq!(Rc::strong_count(&value), 1);
        assert_eq!((cache.next_sweep_ms(), cache.used), (None, Cost::default()));
    }
}
