//! A file as it was when it was looked at, in each coding that lies beside it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::Stat;

use super::cache::Cost;
use super::coding::Coding;
use super::media_type;
use super::root::{Missing, Root};
use super::validators::Validators;

/// What leaves in one write together with its head is kept in memory; it costs less than a call to sendfile.
const MEMORY_BYTES_MAX: u64 = 16 * 1024;

pub struct Resource {
    pub media_type: Cow<'static, str>,
    pub plain: Representation,
    /// At most one of each coding.
    pub coded: Vec<(Coding, Representation)>,
}

pub struct Representation {
    pub validators: Validators,
    pub content: Content,
}

pub enum Content {
    Memory(Vec<u8>),
    File { file: Rc<File>, len: u64 },
}

impl Content {
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }
}

impl Resource {
    /// `now_ns`: since 1970, from before the call.
    pub fn load(root: &Root, path: &Path, now_ns: i64) -> Result<Self, Missing> {
        let loaded = root.as_account(|| {
            let (file, stat) = root.open_file(path)?;
            Ok(Self {
                media_type: media_type::of(path),
                plain: Representation::of(file, &stat, "", now_ns)?,
                coded: Coding::ALL
                    .into_iter()
                    .filter_map(|coding| Some((coding, coded(root, path, coding, &stat, now_ns)?)))
                    .collect(),
            })
        });
        loaded.unwrap_or_else(|error| {
            tracing::error!("{error}");
            Err(Missing::Trouble)
        })
    }

    /// The representation in that coding; `None`: the file itself.
    pub fn in_coding(&self, coding: Option<Coding>) -> &Representation {
        let found = self.coded.iter().find(|(one, _)| Some(*one) == coding);
        found.map_or(&self.plain, |(_, coded)| coded)
    }

    pub fn cost(&self) -> Cost {
        let mut cost = Cost {
            entries: 1,
            ..Cost::default()
        };
        for one in std::iter::once(&self.plain).chain(self.coded.iter().map(|(_, one)| one)) {
            match &one.content {
                Content::Memory(bytes) => cost.bytes += bytes.len(),
                Content::File { .. } => cost.descriptors += 1,
            }
        }
        cost
    }
}

impl Representation {
    fn of(file: File, stat: &Stat, suffix: &str, now_ns: i64) -> Result<Self, Missing> {
        let len = stat.st_size.max(0) as u64;
        let mut is_whole = true;
        let content = match len <= MEMORY_BYTES_MAX {
            true => {
                let bytes = read(&file, len as usize).map_err(|error| {
                    tracing::error!("cannot read a static file: {error}");
                    Missing::Trouble
                })?;
                is_whole = bytes.len() as u64 == len
                    && rustix::fs::fstat(&file).is_ok_and(|after| is_same(stat, &after));
                Content::Memory(bytes)
            }
            false => Content::File {
                file: Rc::new(file),
                len,
            },
        };
        let validators = Validators::new(
            stat.st_mtime,
            stat.st_mtime_nsec as i64,
            content.len(),
            suffix,
            now_ns,
            is_whole,
        );
        Ok(Self {
            validators,
            content,
        })
    }
}

/// The sibling `style.css.br` of `style.css`, unless it is older: then it was made from something else.
fn coded(
    root: &Root,
    path: &Path,
    coding: Coding,
    plain: &Stat,
    now_ns: i64,
) -> Option<Representation> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(coding.extension());
    let (file, stat) = root.open_file(&PathBuf::from(name)).ok()?;
    let is_older = (stat.st_mtime, stat.st_mtime_nsec) < (plain.st_mtime, plain.st_mtime_nsec);
    let suffix = format!("-{}", coding.extension());
    match is_older {
        true => None,
        false => Representation::of(file, &stat, &suffix, now_ns).ok(),
    }
}

/// Up to `len` bytes: fewer if the file has become shorter.
fn read(file: &File, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn is_same(before: &Stat, after: &Stat) -> bool {
    let key = |stat: &Stat| {
        (
            stat.st_size,
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    key(before) == key(after)
}
