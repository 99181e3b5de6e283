//! How much memory the server may still take.

use std::path::Path;

use super::cgroup::{self, Level, Version};
use super::{Root, number_of, read, read_number};

/// In bytes. Swap is not counted: a thread that swaps serves nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLeft {
    /// All, of the machine or of the cgroup that has least left.
    pub total_bytes: u64,
    /// What can be had, what the kernel keeps only as a cache included.
    pub left_bytes: u64,
}

/// Looks at the machine and at the cgroups around the server.
#[derive(Debug)]
pub struct Memory {
    root: Root,
    levels: Vec<Level>,
}

impl Memory {
    pub fn here() -> Self {
        Self::at(Root("/".into()))
    }

    fn at(root: Root) -> Self {
        let levels = cgroup::levels(&root, "memory");
        Self { root, levels }
    }

    /// Reads a few files for each cgroup around the server, which takes a fraction of a millisecond: not for every look.
    /// `None` if the machine's own cannot be read.
    pub fn left(&self) -> Option<MemoryLeft> {
        let machine = of_machine(&self.root.read("/proc/meminfo")?)?;
        let cgroups = self.levels.iter().filter_map(of_cgroup);
        // Version 1 says a huge number if there is no limit.
        let limits = cgroups.filter(|limit| limit.total_bytes < machine.total_bytes);
        limits.chain([machine]).min_by_key(|limit| limit.left_bytes)
    }
}

/// See meminfo in proc(5).
fn of_machine(meminfo: &str) -> Option<MemoryLeft> {
    let bytes = |key| Some(number_of(meminfo, key)?.saturating_mul(1024));
    let total_bytes = bytes("MemTotal")?;
    Some(MemoryLeft {
        total_bytes,
        left_bytes: bytes("MemAvailable")?.min(total_bytes),
    })
}

/// `None` without a limit. In version 2 the kernel slows down whoever is over `memory.high`, so that is a limit too. Of the
/// cache what was not used lately is left, as container managers count it.
fn of_cgroup(level: &Level) -> Option<MemoryLeft> {
    let file = |name: &str| level.dir.join(name);
    let limit = |path: &Path| read_number(path).filter(|bytes| *bytes > 0);
    let stat = read(&file("memory.stat")).unwrap_or_default();
    let in_stat = |key| number_of(&stat, key).unwrap_or(0);
    let (total_bytes, used_bytes, cache_bytes) = match level.version {
        Version::V2 => {
            let limits = ["memory.max", "memory.high"].map(|name| limit(&file(name)));
            (
                limits.into_iter().flatten().min()?,
                read_number(&file("memory.current"))?,
                in_stat("inactive_file").saturating_add(in_stat("slab_reclaimable")),
            )
        }
        Version::V1 => (
            limit(&file("memory.limit_in_bytes"))?,
            read_number(&file("memory.usage_in_bytes"))?,
            in_stat("total_inactive_file"),
        ),
    };
    Some(MemoryLeft {
        total_bytes,
        left_bytes: total_bytes.saturating_sub(used_bytes.saturating_sub(cache_bytes)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Files;
    use super::*;

    const MB: u64 = 1 << 20;

    fn machine(name: &str) -> Files {
        let files = Files::new(name);
        files.write(
            "proc/meminfo",
            "MemTotal:        2097152 kB\nMemFree:          100 kB\nMemAvailable:    1048576 kB\n",
        );
        files
    }

    fn left(files: &Files) -> Option<(u64, u64)> {
        let left = Memory::at(files.root()).left()?;
        Some((left.total_bytes / MB, left.left_bytes / MB))
    }

    #[test]
    fn of_a_machine() {
        let files = machine("memory-machine");
        assert_eq!(left(&files), Some((2048, 1024)));
        files.write("proc/meminfo", "MemTotal: x kB\n");
        assert_eq!(left(&files), None);
    }

    #[test]
    fn of_a_cgroup_on_whatever_level() {
        let files = machine("memory-v2");
        files
            .write("proc/self/cgroup", "0::/slice/service\n")
            .write(
                "proc/self/mountinfo",
                "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            )
            .write("sys/fs/cgroup/slice/memory.max", "536870912\n")
            .write("sys/fs/cgroup/slice/memory.high", "max\n")
            .write("sys/fs/cgroup/slice/memory.current", "314572800\n")
            .write(
                "sys/fs/cgroup/slice/memory.stat",
                "anon 1\ninactive_file 52428800\nslab_reclaimable 0\n",
            )
            .write("sys/fs/cgroup/slice/service/memory.max", "max\n")
            .write("sys/fs/cgroup/slice/service/memory.high", "max\n")
            .write("sys/fs/cgroup/slice/service/memory.current", "209715200\n");
        assert_eq!(left(&files), Some((512, 512 - 300 + 50)));
        files.write("sys/fs/cgroup/slice/service/memory.high", "262144000\n");
        assert_eq!(left(&files), Some((250, 50)));
        files.write(
            "sys/fs/cgroup/slice/service/memory.current",
            "999999999999\n",
        );
        assert_eq!(left(&files), Some((250, 0)));
    }

    #[test]
    fn of_version_1() {
        let files = machine("memory-v1");
        files
            .write("proc/self/cgroup", "4:memory:/a\n0::/\n")
            .write(
                "proc/self/mountinfo",
                "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            )
            .write(
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            )
            .write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n")
            .write(
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "1073741824\n",
            )
            .write(
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes",
                "943718400\n",
            )
            .write(
                "sys/fs/cgroup/memory/a/memory.stat",
                "inactive_file 7\ntotal_inactive_file 104857600\n",
            );
        assert_eq!(left(&files), Some((1024, 1024 - 900 + 100)));
    }
}
