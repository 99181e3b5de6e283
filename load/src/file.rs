//! Files that are read whole, up to a size; a file for what comes of the load.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    // A device or a pipe may have no end.
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(format!(
            "{} is larger than {bytes_max} bytes",
            path.display()
        )),
        false => Ok(bytes),
    }
}

/// Opened before the load, so that a wrong path costs no load; written after it, so that a load that fails leaves what was there.
pub struct Output<'p> {
    path: &'p Path,
    file: File,
}

impl<'p> Output<'p> {
    pub fn open(path: &'p Path) -> Result<Output<'p>, String> {
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        match opened {
            Ok(file) => Ok(Output { path, file }),
            Err(error) => Err(cannot_write(path, error)),
        }
    }

    pub fn write(mut self, bytes: &[u8]) -> Result<(), String> {
        self.replace(bytes)
            .map_err(|error| cannot_write(self.path, error))
    }

    fn replace(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // A pipe or a device has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(bytes)
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
