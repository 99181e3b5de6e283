//! What the server may use: the machine's CPU and memory, or those of the cgroups around it; and what a process takes.
//!
//! Versions 1 and 2 of cgroups, and both at once (cgroups(7)). The narrowest limit counts, on whatever level it is set.
//! What cannot be read sets no limit.

mod cgroup;
mod cpu;
mod memory;
mod process;

pub use cpu::Cpu;
pub use memory::{Memory, MemoryLeft};
pub use process::{CpuTaken, cpu_taken, cpu_taken_by_all, own_cpu_us, own_memory_bytes};

use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` are: `/`, but for tests.
#[derive(Clone, Debug)]
struct Root(PathBuf);

impl Root {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Option<String> {
        read(&self.path(path))
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn read_number(path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// The number behind `key` in lines of a key, blanks or a colon, and a number.
fn number_of(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| {
        let mut words = line.split([' ', ':', '\t']).filter(|word| !word.is_empty());
        (words.next() == Some(key)).then(|| words.next()?.parse().ok())?
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files like those of a machine, in a folder of their own.
    pub(super) struct Files(Root);

    impl Files {
        pub(super) fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("baton-machine-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(Root(path))
        }

        pub(super) fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path(path);
            let parent = path.parent().expect("a file has a folder");
            std::fs::create_dir_all(parent).expect("a folder");
            std::fs::write(path, text).expect("a file");
            self
        }

        pub(super) fn root(&self) -> Root {
            self.0.clone()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.0);
        }
    }

    #[test]
    fn numbers_are_found_by_their_keys() {
        let text = "MemTotal:       16281904 kB\nusage_usec 77\nusage_usec_more 1\nbroken x\n";
        assert_eq!(number_of(text, "MemTotal"), Some(16_281_904));
        assert_eq!(number_of(text, "usage_usec"), Some(77));
        assert_eq!(number_of(text, "broken"), None);
        assert_eq!(number_of(text, "absent"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut cpu = Cpu::here();
        let first = cpu.total().expect("/proc/stat");
        let second = cpu.total().expect("/proc/stat");
        assert!(first.cores > 0.0 && second.left_us >= first.left_us);
        let memory = Memory::here().left().expect("/proc/meminfo");
        assert!(memory.left_bytes <= memory.total_bytes && memory.total_bytes > 0);
    }
}
