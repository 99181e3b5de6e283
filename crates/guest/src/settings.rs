//! What the front tells a zygote about its app: names with values, in one message.
//!
//! On the wire a name and a value alternate, each ended by a NUL, so that a C guest can use the
//! values in place.

use std::ffi::CStr;

/// Appends one setting. A NUL in the value would end it early, so it is cut off there.
pub fn append(wire: &mut Vec<u8>, name: &str, value: &[u8]) {
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    wire.extend_from_slice(name.as_bytes());
    wire.push(0);
    wire.extend_from_slice(value);
    wire.push(0);
}

/// The settings of this process.
#[derive(Default)]
pub struct Settings {
    wire: Vec<u8>,
}

impl Settings {
    pub fn new(wire: Vec<u8>) -> Self {
        Self { wire }
    }

    pub fn get(&self, name: &str) -> Option<&CStr> {
        let mut rest = self.wire.as_slice();
        loop {
            let (found, after) = next_string(rest)?;
            let (value, after) = next_string(after)?;
            if found.to_bytes() == name.as_bytes() {
                return Some(value);
            }
            rest = after;
        }
    }

    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str().ok()
    }
}

fn next_string(bytes: &[u8]) -> Option<(&CStr, &[u8])> {
    let string = CStr::from_bytes_until_nul(bytes).ok()?;
    Some((string, &bytes[string.count_bytes() + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_by_name() {
        let mut wire = Vec::new();
        append(&mut wire, "root", b"/srv/site");
        append(&mut wire, "index", b"");
        append(&mut wire, "odd", b"cut\0here");
        let settings = Settings::new(wire);
        assert_eq!(settings.get_str("root"), Some("/srv/site"));
        assert_eq!(settings.get_str("index"), Some(""));
        assert_eq!(settings.get_str("odd"), Some("cut"));
        assert_eq!(settings.get_str("/srv/site"), None);
    }

    #[test]
    fn a_torn_message_has_what_is_whole() {
        assert!(Settings::new(b"root\0/srv".to_vec()).get("root").is_none());
        assert!(Settings::default().get("root").is_none());
    }
}
