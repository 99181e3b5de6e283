//! From the plan to the reply.

use std::hash::{BuildHasher, RandomState};

use baton_server::{ConnId, FilePart, Io};

use super::coding::Coding;
use super::plan::Plan;
use super::ranges::ByteRange;
use super::resource::{Content, Representation, Resource};

type Headers<'h> = Vec<(&'h [u8], &'h [u8])>;

/// What a reply is made of.
pub struct Answer<'a> {
    pub resource: &'a Resource,
    /// The coding that was chosen.
    pub coding: Option<Coding>,
    /// As in Cache-Control.
    pub cache_control: Option<&'a str>,
    pub is_head: bool,
}

impl Answer<'_> {
    pub fn send(&self, io: &mut Io, conn: ConnId, plan: Plan) {
        let chosen = self.resource.in_coding(self.coding);
        let len = chosen.content.len();
        match plan {
            Plan::Whole => self.send_whole(io, conn, chosen),
            Plan::Range(range) => self.send_range(io, conn, chosen, range),
            Plan::Ranges(ranges) => self.send_ranges(io, conn, chosen, &ranges),
            Plan::NotModified => {
                // RFC 9110, section 15.4.5: what guides a cache, and no more.
                let mut headers: Headers<'_> = vec![(b"ETag", chosen.validators.etag.as_bytes())];
                self.add_caching(&mut headers);
                io.respond(conn, 304, None, headers, b"");
            }
            Plan::PreconditionFailed => {
                let headers: Headers<'_> = vec![(b"Content-Type", b"text/plain")];
                let reason = b"The file is not what the request expects.\n";
                io.respond(conn, 412, None, headers, reason);
            }
            Plan::RangeNotSatisfiable => {
                let range = format!("bytes */{len}");
                let headers: Headers<'_> = vec![
                    (b"Content-Type", b"text/plain"),
                    (b"Content-Range", range.as_bytes()),
                ];
                let reason = b"The file has no such range.\n";
                io.respond(conn, 416, None, headers, reason);
            }
        }
    }

    fn send_whole(&self, io: &mut Io, conn: ConnId, chosen: &Representation) {
        let mut headers = self.headers(chosen, &self.resource.media_type);
        let digits;
        if self.is_head {
            // Of an empty file, too, HEAD says the length.
            digits = chosen.content.len().to_string();
            headers.push((b"Content-Length", digits.as_bytes()));
        }
        match &chosen.content {
            Content::Memory(bytes) => io.respond(conn, 200, None, headers, bytes),
            Content::File { file, len } => io.send_file(conn, 200, headers, file.clone(), 0, *len),
        }
    }

    fn send_range(&self, io: &mut Io, conn: ConnId, chosen: &Representation, range: ByteRange) {
        let content_range = format!("{range}/{}", chosen.content.len());
        let mut headers = self.headers(chosen, &self.resource.media_type);
        headers.push((b"Content-Range", content_range.as_bytes()));
        match &chosen.content {
            Content::Memory(bytes) => {
                io.respond(conn, 206, None, headers, slice(bytes, range));
            }
            Content::File { file, .. } => {
                io.send_file(conn, 206, headers, file.clone(), range.first, range.len());
            }
        }
    }

    /// multipart/byteranges: RFC 9110, section 14.6.
    fn send_ranges(
        &self,
        io: &mut Io,
        conn: ConnId,
        chosen: &Representation,
        ranges: &[ByteRange],
    ) {
        let boundary = boundary();
        let multipart = format!("multipart/byteranges; boundary={boundary}");
        let headers = self.headers(chosen, &multipart);
        let mut parts = self.parts(ranges, chosen.content.len(), &boundary);
        match &chosen.content {
            Content::Memory(bytes) => {
                let mut body = Vec::new();
                for (part, range) in parts.iter().zip(ranges) {
                    body.extend_from_slice(&part.before);
                    body.extend_from_slice(slice(bytes, *range));
                }
                body.extend_from_slice(&end_of_parts(&boundary));
                io.respond(conn, 206, None, headers, &body);
            }
            Content::File { file, .. } => {
                parts.push(FilePart {
                    before: end_of_parts(&boundary),
                    offset: 0,
                    len: 0,
                });
                let first = parts.remove(0);
                io.send_file_parts(conn, 206, headers, file.clone(), first, parts);
            }
        }
    }

    fn parts(&self, ranges: &[ByteRange], len: u64, boundary: &str) -> Vec<FilePart> {
        let part = |(index, range): (usize, &ByteRange)| {
            let line_end = if index == 0 { "" } else { "\r\n" };
            let media_type = &self.resource.media_type;
            let before = format!(
                "{line_end}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {range}/{len}\r\n\r\n"
            );
            FilePart {
                before: before.into_bytes(),
                offset: range.first,
                len: range.len(),
            }
        };
        ranges.iter().enumerate().map(part).collect()
    }

    fn headers<'h>(&'h self, chosen: &'h Representation, media_type: &'h str) -> Headers<'h> {
        let validators = &chosen.validators;
        let mut headers: Headers<'h> = Vec::with_capacity(8);
        headers.push((b"Content-Type", media_type.as_bytes()));
        if let Some(coding) = self.coding {
            headers.push((b"Content-Encoding", coding.name().as_bytes()));
        }
        headers.push((b"Last-Modified", &validators.last_modified));
        headers.push((b"ETag", validators.etag.as_bytes()));
        headers.push((b"Accept-Ranges", b"bytes"));
        self.add_caching(&mut headers);
        headers
    }

    fn add_caching<'h>(&'h self, headers: &mut Headers<'h>) {
        if !self.resource.coded.is_empty() {
            headers.push((b"Vary", b"Accept-Encoding"));
        }
        if let Some(cache_control) = self.cache_control {
            headers.push((b"Cache-Control", cache_control.as_bytes()));
        }
    }
}

fn slice(bytes: &[u8], range: ByteRange) -> &[u8] {
    &bytes[range.first as usize..=range.last as usize]
}

fn end_of_parts(boundary: &str) -> Vec<u8> {
    format!("\r\n--{boundary}--\r\n").into_bytes()
}

/// Must not be in the file, so whoever wrote the file must not guess it. `RandomState` has new keys each time.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", random(), random())
}
