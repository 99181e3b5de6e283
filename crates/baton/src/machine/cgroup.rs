//! The cgroups that the server is in.

use std::path::PathBuf;

use super::Root;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// A cgroup around the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub version: Version,
    pub dir: PathBuf,
}

/// More are not looked through.
const LEVELS_MAX: usize = 32;

/// The cgroups in which `controller` may limit the server, from the narrowest outwards.
pub fn levels(root: &Root, controller: &str) -> Vec<Level> {
    let memberships = root.read("/proc/self/cgroup").unwrap_or_default();
    let mounts = root.read("/proc/self/mountinfo").unwrap_or_default();
    let Some((version, path)) = membership(&memberships, controller) else {
        return Vec::new();
    };
    let Some((mount_root, mount_point)) = mount(&mounts, version, controller) else {
        return Vec::new();
    };
    // Where only a part of the hierarchy is mounted, as in a container, the path may lie outside.
    let below = path.strip_prefix(mount_root);
    let below = below
        .filter(|below| below.starts_with('/'))
        .unwrap_or_default();
    let mut names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    if names.contains(&"..") {
        names.clear();
    }
    names.truncate(LEVELS_MAX);
    let point = root.path(mount_point);
    let dir = |depth: usize| {
        names[..depth]
            .iter()
            .fold(point.clone(), |dir, name| dir.join(name))
    };
    (0..=names.len())
        .rev()
        .map(|depth| Level {
            version,
            dir: dir(depth),
        })
        .collect()
}

/// Which hierarchy has the controller, and where in it the server is: lines of `hierarchy:controllers:path`.
fn membership<'a>(text: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    let fields = |line: &'a str| {
        let mut fields = line.splitn(3, ':');
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let lines = || text.lines().filter_map(fields);
    let v1 =
        lines().find(|(_, controllers, _)| controllers.split(',').any(|name| name == controller));
    let v2 =
        || lines().find(|(hierarchy, controllers, _)| *hierarchy == "0" && controllers.is_empty());
    match v1 {
        Some((_, _, path)) => Some((Version::V1, path)),
        None => v2().map(|(_, _, path)| (Version::V2, path)),
    }
}

/// What of the hierarchy is mounted, and where: see mountinfo in proc(5).
fn mount<'a>(text: &'a str, version: Version, controller: &str) -> Option<(&'a str, &'a str)> {
    let is_it = |line: &'a str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (mount_root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (fs_type, options) = (kind.next()?, kind.nth(1)?);
        let is_meant = match version {
            Version::V1 => fs_type == "cgroup" && options.split(',').any(|name| name == controller),
            Version::V2 => fs_type == "cgroup2",
        };
        is_meant.then_some((mount_root.trim_end_matches('/'), point))
    };
    text.lines().find_map(is_it)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Files;
    use super::*;

    fn dirs(files: &Files, controller: &str) -> Vec<(Version, String)> {
        let root = files.root().path("");
        let shown = |level: Level| {
            let dir = level.dir.strip_prefix(&root).expect("below the root");
            (level.version, dir.display().to_string())
        };
        levels(&files.root(), controller)
            .into_iter()
            .map(shown)
            .collect()
    }

    #[test]
    fn a_service_of_systemd() {
        let files = Files::new("systemd");
        files
            .write("proc/self/cgroup", "0::/system.slice/baton.service\n")
            .write(
                "proc/self/mountinfo",
                "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            );
        let v2 = |dir: &str| (Version::V2, dir.to_owned());
        let expected = [
            v2("sys/fs/cgroup/system.slice/baton.service"),
            v2("sys/fs/cgroup/system.slice"),
            v2("sys/fs/cgroup"),
        ];
        assert_eq!(dirs(&files, "cpu"), expected);
        assert_eq!(dirs(&files, "memory"), expected);
    }

    #[test]
    fn both_versions_at_once() {
        let files = Files::new("hybrid");
        files
            .write(
                "proc/self/cgroup",
                "4:memory:/a/b\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/y\n",
            )
            .write(
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                 32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            );
        let v1 = |dir: &str| (Version::V1, dir.to_owned());
        assert_eq!(dirs(&files, "cpu"), [v1("sys/fs/cgroup/cpu,cpuacct")]);
        let memory = [
            "sys/fs/cgroup/memory/a/b",
            "sys/fs/cgroup/memory/a",
            "sys/fs/cgroup/memory",
        ];
        assert_eq!(dirs(&files, "memory"), memory.map(v1));
        let unified = ["sys/fs/cgroup/unified/y", "sys/fs/cgroup/unified"];
        let unified = unified.map(|dir| (Version::V2, dir.to_owned()));
        assert_eq!(dirs(&files, "io"), unified);
    }

    #[test]
    fn a_container_that_sees_its_own_part_only() {
        let files = Files::new("container");
        files
            .write(
                "proc/self/cgroup",
                "5:memory:/docker/abc/more\n0::/../outside\n",
            )
            .write(
                "proc/self/mountinfo",
                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            );
        let memory = ["sys/fs/cgroup/memory/more", "sys/fs/cgroup/memory"];
        assert_eq!(
            dirs(&files, "memory"),
            memory.map(|dir| (Version::V1, dir.to_owned()))
        );
        let unified = [(Version::V2, "sys/fs/cgroup/unified".to_owned())];
        assert_eq!(dirs(&files, "cpu"), unified);
    }

    #[test]
    fn a_name_that_begins_like_another_is_another() {
        let files = Files::new("neighbour");
        files
            .write("proc/self/cgroup", "5:memory:/docker/abc\n")
            .write(
                "proc/self/mountinfo",
                "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            );
        let outermost = (Version::V1, "sys/fs/cgroup/memory".to_owned());
        assert_eq!(dirs(&files, "memory"), [outermost]);
    }

    #[test]
    fn nothing_or_nonsense_is_no_cgroup() {
        let files = Files::new("nonsense");
        assert!(dirs(&files, "cpu").is_empty());
        files.write("proc/self/cgroup", "0:\n:::\n0::/a\n").write(
            "proc/self/mountinfo",
            " - \n1 2 - cgroup2\n1 2 3 / /x rw - cgroup2\n\n",
        );
        assert!(dirs(&files, "cpu").is_empty());
    }
}
