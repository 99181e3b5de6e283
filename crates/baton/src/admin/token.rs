//! The secret that clients have to show: `Authorization: Bearer …` (RFC 6750, section 2.1).

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use subtle::ConstantTimeEq;

pub const BYTES_MIN: usize = 16;
pub const BYTES_MAX: usize = 1024;

pub struct Token(String);

impl Token {
    /// From a file that holds it and nothing else, but for blanks around it.
    ///
    /// # Errors
    /// Others may read the file, or there is no token in it that is fit for a header.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error| format!("cannot read the admin token from {shown}: {error}");
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.mode() & 0o007 != 0 {
            return Err(format!(
                "others may read the admin token in {shown}; chmod 600 {shown}"
            ));
        }
        let mut text = String::new();
        let mut start = (&mut file).take(BYTES_MAX as u64 + 256);
        start.read_to_string(&mut text).map_err(failed)?;
        let token = text.trim();
        let is_fit = |byte: u8| byte.is_ascii_graphic();
        if !(BYTES_MIN..=BYTES_MAX).contains(&token.len()) || !token.bytes().all(is_fit) {
            return Err(format!(
                "the admin token in {shown} is not {BYTES_MIN} to {BYTES_MAX} letters, digits and signs without blanks; \
                 `openssl rand -hex 32` makes one"
            ));
        }
        Ok(Self(token.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Of an `Authorization` header. How long it takes does not tell how much of the token is right.
    pub fn is_shown_by(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, shown)) = authorization.and_then(|value| value.split_at_checked(7))
        else {
            return false;
        };
        // The scheme's case does not matter (RFC 9110, section 11.1).
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(self.0.as_bytes().ct_eq(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_whole_token_counts() {
        let token = Token("0123456789abcdef".into());
        let shows = |value: &str| token.is_shown_by(Some(value.as_bytes()));
        assert!(shows("Bearer 0123456789abcdef") && shows("bearer 0123456789abcdef"));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer  0123456789abcdef",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!shows(bad), "{bad:?}");
        }
        assert!(!token.is_shown_by(None));
    }

    #[test]
    fn a_token_is_read_from_a_file_of_ones_own() {
        let path = std::env::temp_dir().join(format!("baton-token-{}", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
            Token::read(&path).map(|token| token.0)
        };
        let good = "0123456789abcdef";
        assert_eq!(write(&format!(" {good}\n"), 0o600).as_deref(), Ok(good));
        assert!(write(good, 0o640).is_ok());
        assert!(write(good, 0o644).is_err_and(|reason| reason.contains("chmod 600")));
        let long = "x".repeat(BYTES_MAX + 1);
        for bad in [
            "",
            "short",
            "0123456789 abcdef",
            "0123456789abcdef\u{e9}",
            &long,
        ] {
            assert!(write(bad, 0o600).is_err(), "{bad:?}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(Token::read(&path).is_err());
    }
}
