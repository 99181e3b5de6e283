//! multipart/form-data bodies, as a browser sends them.

const BOUNDARY: &str = "----journey7d93b1c0f2";

#[derive(Default)]
pub struct Multipart {
    bytes: Vec<u8>,
}

impl Multipart {
    pub fn new() -> Multipart {
        Multipart::default()
    }

    pub fn field(mut self, name: &str, value: &str) -> Multipart {
        self.bytes.extend_from_slice(
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .as_bytes(),
        );
        self
    }

    pub fn file(
        mut self,
        name: &str,
        filename: &str,
        media_type: &str,
        content: &[u8],
    ) -> Multipart {
        self.bytes.extend_from_slice(
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n\
                 Content-Type: {media_type}\r\n\r\n"
            )
            .as_bytes(),
        );
        self.bytes.extend_from_slice(content);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub fn content_type() -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes
            .extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.bytes
    }
}
