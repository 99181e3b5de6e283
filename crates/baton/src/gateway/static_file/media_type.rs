//! A file's media type, from its name.

use std::borrow::Cow;
use std::path::Path;

/// As in Content-Type. Text is taken for UTF-8, but XML says its coding itself (RFC 7303, section 3).
pub fn of(path: &Path) -> Cow<'static, str> {
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let media_type = match extension.as_str() {
        // Today's names for what the library knows by older ones: RFC 9239, RFC 8081.
        "mjs" | "cjs" => "text/javascript",
        "woff" => "font/woff",
        // Source maps.
        "map" => "application/json",
        other => mime_guess::from_ext(other)
            .first_raw()
            .unwrap_or("application/octet-stream"),
    };
    match media_type.starts_with("text/") && media_type != "text/xml" {
        true => format!("{media_type}; charset=utf-8").into(),
        false => media_type.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_that_browsers_want() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.HTM", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.csv", "text/csv; charset=utf-8"),
            ("a.xml", "text/xml"),
            ("a.svg", "image/svg+xml"),
            ("a.json", "application/json"),
            ("a.js.map", "application/json"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.wasm", "application/wasm"),
            ("a.png", "image/png"),
            ("a.JPG", "image/jpeg"),
            ("a.gif", "image/gif"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.ico", "image/x-icon"),
            ("a.woff", "font/woff"),
            ("a.woff2", "font/woff2"),
            ("a.ttf", "font/ttf"),
            ("a.pdf", "application/pdf"),
            ("a.zip", "application/zip"),
            ("a.tar.gz", "application/gzip"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.mp3", "audio/mpeg"),
            ("a.unknown", "application/octet-stream"),
            ("a", "application/octet-stream"),
            ("html", "application/octet-stream"),
        ] {
            assert_eq!(of(Path::new(name)), expected, "{name}");
        }
    }
}
