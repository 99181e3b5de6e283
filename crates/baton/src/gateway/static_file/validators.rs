//! What tells one state of a file from another: RFC 9110, section 8.8.

use baton_server::http1::http_date;

const NS_PER_S: i128 = 1_000_000_000;

/// Entity tag and modification date of a file in one coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// As it stands in a header: `"..."` or `W/"..."`.
    pub etag: String,
    /// As it stands in a header.
    pub last_modified: [u8; 29],
    /// The same, since 1970.
    pub modified_s: i64,
    /// False: the file may have changed twice within one reading of the file system's clock.
    pub is_strong: bool,
}

impl Validators {
    /// For a file of `len` bytes, last changed at `modified_s` and `modified_ns`, looked at when it was `now_ns`
    /// (all since 1970). `suffix` keeps the codings of one file apart. `is_whole`: it did not change meanwhile.
    pub fn new(
        modified_s: i64,
        modified_ns: i64,
        len: u64,
        suffix: &str,
        now_ns: i64,
        is_whole: bool,
    ) -> Self {
        let changed_ns = i128::from(modified_s) * NS_PER_S + i128::from(modified_ns);
        // Sections 8.8.1 and 8.8.2.2: a second later, another change would have given another time.
        let is_strong = is_whole && changed_ns + NS_PER_S <= i128::from(now_ns);
        let weak = if is_strong { "" } else { "W/" };
        // Section 8.8.2.1: never later than the reply's Date.
        let modified_s = modified_s.min(now_ns.div_euclid(NS_PER_S as i64));
        Self {
            etag: format!(
                "{weak}\"{:x}-{len:x}{suffix}\"",
                changed_ns.clamp(0, i128::from(u64::MAX))
            ),
            last_modified: http_date(modified_s),
            modified_s: modified_s.max(0),
            is_strong,
        }
    }

    /// What stands between the quotes of the tag.
    pub fn opaque(&self) -> &str {
        self.etag.trim_start_matches("W/").trim_matches('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 784_111_777;

    fn of(modified_s: i64, modified_ns: i64) -> Validators {
        Validators::new(
            modified_s,
            modified_ns,
            255,
            "",
            NOW_S * 1_000_000_000,
            true,
        )
    }

    #[test]
    fn tags_differ_by_time_length_and_coding() {
        let tag = |ns, len, suffix| Validators::new(1, ns, len, suffix, i64::MAX, true).etag;
        let all = [
            tag(0, 5, ""),
            tag(1, 5, ""),
            tag(0, 6, ""),
            tag(0, 5, "-gz"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(one.starts_with('"') && one.ends_with('"'), "{one}");
            assert!(!all[..i].contains(one), "{one}");
        }
    }

    #[test]
    fn a_file_that_just_changed_has_a_weak_tag() {
        assert!(of(NOW_S - 1, 0).is_strong);
        let recent = of(NOW_S - 1, 1);
        assert!(!recent.is_strong && recent.etag.starts_with("W/\""));
        assert_eq!(
            recent.opaque(),
            of(NOW_S - 1, 1).etag[3..].trim_matches('"')
        );
        assert!(!Validators::new(1, 0, 5, "", i64::MAX, false).is_strong);
    }

    #[test]
    fn the_date_lies_neither_in_the_future_nor_before_1970() {
        let future = of(NOW_S + 1000, 0);
        assert_eq!(&future.last_modified, b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!((future.modified_s, future.is_strong), (NOW_S, false));
        let ancient = of(-5, 0);
        assert_eq!(&ancient.last_modified, b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(ancient.modified_s, 0);
    }
}
