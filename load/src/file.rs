//! Files that are read whole, up to a size.

use std::fs::File;
use std::io::Read;
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
