//! A host name that no other run has. Debian's packages look up a site's configuration under /etc by the name that is asked
//! for, so that a journey has a site of its own on them, beside whatever else the machine serves.

use std::fs;
use std::path::Path;

use crate::proc;

const PREFIX: &str = "baton-";
const SUFFIX: &str = ".journey.test";

pub fn own() -> String {
    format!("{PREFIX}{}{SUFFIX}", std::process::id())
}

/// The names of runs that were killed before they could tidy up, from entries of a folder that are named after them.
pub fn left_over(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| left_over_in(entry.file_name().to_str()?));
    names.collect()
}

fn left_over_in(name: &str) -> Option<String> {
    let from = name.find(PREFIX)?;
    let to = name.find(SUFFIX)?;
    let pid: u32 = name.get(from + PREFIX.len()..to)?.parse().ok()?;
    (!proc::is_alive(pid)).then(|| format!("{PREFIX}{pid}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_leave_anything() {
        assert_eq!(left_over_in(&own()), None);
        assert_eq!(left_over_in("example.org"), None);
        let dead = left_over_in("config-baton-4194305.journey.test.php");
        assert_eq!(dead.as_deref(), Some("baton-4194305.journey.test"));
    }
}
