//! A request body on its way in: in memory as long as it is small, then in a file without a name.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, unlink};

use crate::http1::{BodyDecoder, Framing, Limits, Reject};

const CANNOT_STORE: Reject = Reject::new(500, "the request body cannot be stored");

/// A request whose head is whole and whose body is not.
pub(crate) struct Arriving {
    /// Parsed again when the body is whole; cheaper than to keep a parsed head alive.
    pub(crate) head: Vec<u8>,
    /// Those that it was parsed by first: others may hold by then.
    pub(crate) limits: Limits,
    decoder: BodyDecoder,
    store: Store,
    pub(crate) stored_bytes: u64,
    pub(crate) started_ms: u64,
}

pub(crate) enum Store {
    Memory(Vec<u8>),
    File(File),
}

/// Where bodies may lie.
pub(crate) struct Places<'c> {
    pub(crate) memory_bytes_max: usize,
    pub(crate) temp_dir: &'c Path,
}

impl Arriving {
    pub(crate) fn new(head: &[u8], framing: Framing, limits: &Limits, started_ms: u64) -> Arriving {
        Arriving {
            head: head.to_vec(),
            limits: *limits,
            decoder: BodyDecoder::new(framing, limits),
            store: Store::Memory(Vec::new()),
            stored_bytes: 0,
            started_ms,
        }
    }

    /// Returns how many bytes belong to this body, and whether it is whole.
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        places: &Places<'_>,
    ) -> Result<(usize, bool), Reject> {
        let mut stored = Ok(());
        let (store, stored_bytes) = (&mut self.store, &mut self.stored_bytes);
        let decoded = self.decoder.decode(input, &mut |bytes| {
            if stored.is_ok() {
                stored = store.put(bytes, places);
                *stored_bytes += bytes.len() as u64;
            }
        })?;
        if let Err(error) = stored {
            tracing::error!(%error, dir = %places.temp_dir.display(), "a request body cannot be stored");
            return Err(CANNOT_STORE);
        }
        Ok((decoded.consumed, decoded.done))
    }

    /// The body is whole: its head, and where it lies. A file is at its beginning.
    pub(crate) fn finish(self) -> Result<(Vec<u8>, Store), Reject> {
        let mut store = self.store;
        if let Store::File(file) = &mut store {
            file.seek(SeekFrom::Start(0)).map_err(|_| CANNOT_STORE)?;
        }
        Ok((self.head, store))
    }
}

impl Store {
    fn put(&mut self, bytes: &[u8], places: &Places<'_>) -> io::Result<()> {
        match self {
            Store::File(file) => file.write_all(bytes),
            Store::Memory(memory) if memory.len() + bytes.len() <= places.memory_bytes_max => {
                memory.extend_from_slice(bytes);
                Ok(())
            }
            Store::Memory(memory) => {
                let mut file = unnamed_file(places.temp_dir)?;
                file.write_all(memory)?;
                file.write_all(bytes)?;
                *self = Store::File(file);
                Ok(())
            }
        }
    }
}

/// A file that nobody else can open and that goes away by itself.
fn unnamed_file(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        Ok(fd) => Ok(File::from(fd)),
        // Not every file system has it.
        Err(_) => named_then_unlinked(dir, flags, mode),
    }
}

#[cold]
fn named_then_unlinked(dir: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    const ATTEMPTS_MAX: u32 = 100;
    for attempt in 0..ATTEMPTS_MAX {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!(
            "baton-body-{}-{}-{attempt}",
            std::process::id(),
            now.as_nanos()
        );
        let path = dir.join(name);
        match openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(fd) => {
                unlink(&path)?;
                return Ok(File::from(fd));
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn content(mut store: Store) -> Vec<u8> {
        let mut content = Vec::new();
        match &mut store {
            Store::Memory(memory) => content.append(memory),
            Store::File(file) => {
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_to_end(&mut content).unwrap();
            }
        }
        content
    }

    #[test]
    fn goes_to_a_file_when_it_grows() {
        let dir = std::env::temp_dir();
        let places = Places {
            memory_bytes_max: 8,
            temp_dir: &dir,
        };
        let mut store = Store::Memory(Vec::new());
        store.put(b"12345678", &places).unwrap();
        assert!(matches!(store, Store::Memory(_)));
        store.put(b"9", &places).unwrap();
        assert!(matches!(store, Store::File(_)));
        store.put(b"abc", &places).unwrap();
        assert_eq!(content(store), b"123456789abc");
    }

    #[test]
    fn without_tmpfile_the_name_goes_at_once() {
        let dir = std::env::temp_dir();
        let before = std::fs::read_dir(&dir).unwrap().count();
        let file = named_then_unlinked(
            &dir,
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(std::fs::read_dir(&dir).unwrap().count() <= before + 1);
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        assert!(unnamed_file(Path::new("/does/not/exist")).is_err());
    }
}
