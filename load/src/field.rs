//! The bytes that names and values of header fields may have (RFC 9110, section 5).

/// Without the spaces and tabs at both ends.
#[inline]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Branchless, so that it runs over many bytes at once.
#[inline]
pub fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| {
        found | (*byte < 0x20 && *byte != b'\t') | (*byte == 0x7f)
    })
}

/// tchar of RFC 9110, section 5.6.2.
pub const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        at += 1;
    }
    table
};

pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| TOKEN[usize::from(byte)])
}

pub fn is_field_value(text: &str) -> bool {
    !has_control(text.as_bytes())
}

/// As in a URL: no spaces, nothing beyond ASCII.
pub fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}
