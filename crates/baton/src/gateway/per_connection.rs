//! What the gateway remembers of connections.

use baton_server::ConnId;

/// By the connection's index. What an earlier connection has left in its place is not taken for the new one's.
pub struct PerConnection<T>(Vec<Option<(ConnId, T)>>);

impl<T> Default for PerConnection<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> PerConnection<T> {
    pub fn get(&self, conn: ConnId) -> Option<&T> {
        let (of, value) = self.0.get(index(conn))?.as_ref()?;
        (*of == conn).then_some(value)
    }

    pub fn set(&mut self, conn: ConnId, value: T) {
        let index = index(conn);
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some((conn, value));
    }

    pub fn take(&mut self, conn: ConnId) -> Option<T> {
        let place = self.0.get_mut(index(conn))?;
        place.take_if(|(of, _)| *of == conn).map(|(_, value)| value)
    }
}

fn index(conn: ConnId) -> usize {
    conn.to_bits() as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_in_an_old_one_s_place_has_nothing() {
        let [old, new] = [1, 2].map(|generation: u64| ConnId::from_bits(generation << 32 | 7));
        let mut remembered = PerConnection::default();
        remembered.set(old, "old");
        assert_eq!(remembered.get(old), Some(&"old"));
        assert_eq!(remembered.get(new), None);
        assert_eq!(remembered.take(new), None);
        remembered.set(new, "new");
        assert_eq!(remembered.take(old), None);
        assert_eq!(remembered.take(new), Some("new"));
        assert_eq!(remembered.get(new), None);
    }
}
