//! Pictures to upload: grey PNGs of any size, and the size of one that came back.

/// A picture that every decoder takes, not compressed, so that it is as large as it looks.
pub fn grey(width: u32, height: u32) -> Vec<u8> {
    let row = |y: u32| (0..width).map(move |x| (x / 3 + y / 2) as u8);
    // Each row begins with its filter, 0 for none.
    let rows: Vec<u8> = (0..height)
        .flat_map(|y| std::iter::once(0).chain(row(y)))
        .collect();
    let mut head = Vec::new();
    head.extend(width.to_be_bytes());
    head.extend(height.to_be_bytes());
    // 8 bits, grey, and the only methods that there are.
    head.extend([8, 0, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut png, b"IHDR", &head);
    chunk(&mut png, b"IDAT", &stored(&rows));
    chunk(&mut png, b"IEND", b"");
    png
}

/// Width and height; panics unless the file is there from its first byte to its last.
#[track_caller]
pub fn size(bytes: &[u8]) -> (u32, u32) {
    assert!(
        bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(b"IEND\xaeB`\x82"),
        "no whole PNG: {} bytes",
        bytes.len()
    );
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend((data.len() as u32).to_be_bytes());
    let start = png.len();
    png.extend(kind);
    png.extend(data);
    let sum = crc32(&png[start..]);
    png.extend(sum.to_be_bytes());
}

/// A zlib stream (RFC 1950) of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = bytes.chunks(0xffff);
    let last = blocks.len() - 1;
    for (i, block) in blocks.enumerate() {
        stream.push(u8::from(i == last));
        stream.extend((block.len() as u16).to_le_bytes());
        stream.extend((!block.len() as u16).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_size_and_sums() {
        assert_eq!(size(&grey(300, 257)), (300, 257));
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }
}
