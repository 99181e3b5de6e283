//! A very small browser: cookies, redirects, forms. One per user.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::client::{self, Conn, Fault, Reply};
use crate::multipart::Multipart;

const REDIRECTS_MAX: usize = 5;
/// Longer than a request may take in the queue and in the application.
const PATIENCE: Duration = Duration::from_secs(130);

pub struct Browser {
    addr: SocketAddr,
    host: String,
    cookies: BTreeMap<String, String>,
    conn: Option<Conn>,
}

/// The fields of a form that would be sent.
pub type Fields = Vec<(String, String)>;

impl Browser {
    pub fn new(addr: SocketAddr) -> Browser {
        Browser::for_host(addr, &addr.to_string())
    }

    /// For one of several sites at that address.
    pub fn for_host(addr: SocketAddr, host: &str) -> Browser {
        Browser {
            addr,
            host: host.to_owned(),
            cookies: BTreeMap::new(),
            conn: None,
        }
    }

    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.get(name).map(String::as_str)
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Reply {
        self.follow("GET", target, &[], b"")
    }

    /// Sends a form as `application/x-www-form-urlencoded` and follows the redirect that usually comes.
    #[track_caller]
    pub fn post(&mut self, target: &str, fields: &[(String, String)]) -> Reply {
        let body = encode_form(fields);
        self.follow(
            "POST",
            target,
            &[("Content-Type", "application/x-www-form-urlencoded")],
            body.as_bytes(),
        )
    }

    #[track_caller]
    pub fn post_multipart(&mut self, target: &str, body: Multipart) -> Reply {
        self.follow(
            "POST",
            target,
            &[("Content-Type", &Multipart::content_type())],
            &body.finish(),
        )
    }

    #[track_caller]
    fn follow(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut reply = self.once(method, target, headers, body);
        let mut target = target.to_owned();
        for _ in 0..REDIRECTS_MAX {
            if !matches!(reply.status(), 301 | 302 | 303 | 307 | 308) {
                return reply;
            }
            let to = reply
                .header("location")
                .expect("a redirect has a location")
                .to_owned();
            target = resolve(&target, &to, &self.host);
            reply = self.once("GET", &target, &[], b"");
        }
        panic!("more than {REDIRECTS_MAX} redirects, last to {target}");
    }

    /// One request, no redirects. The connection is kept; one that the server closed meanwhile is opened anew.
    #[track_caller]
    pub fn once(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let cookie: Vec<String> = self
            .cookies
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        let cookie = cookie.join("; ");
        let mut all = vec![
            ("Host", self.host.as_str()),
            ("User-Agent", "journey"),
            ("Accept", "*/*"),
        ];
        if !cookie.is_empty() {
            all.push(("Cookie", &cookie));
        }
        all.extend_from_slice(headers);
        let bytes = client::request(method, target, &all, body);
        let (mut conn, kept) = match self.conn.take() {
            Some(conn) => (conn, true),
            None => (self.connect(), false),
        };
        let mut result = conn.ask(&bytes);
        if kept && matches!(result, Err(Fault::Closed | Fault::Io(_))) {
            conn = self.connect();
            result = conn.ask(&bytes);
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(fault) => panic!("{method} {target}: {fault}"),
        };
        if !reply.head.says_close() {
            self.conn = Some(conn);
        }
        self.remember(&reply);
        reply
    }

    #[track_caller]
    fn connect(&self) -> Conn {
        Conn::open(self.addr).patience(PATIENCE)
    }

    fn remember(&mut self, reply: &Reply) {
        for line in reply.head.all("set-cookie") {
            let mut parts = line.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|p| p.split_once('=')) else {
                continue;
            };
            let ended = value == "deleted" || parts.any(|p| p.eq_ignore_ascii_case("max-age=0"));
            if ended {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

/// The target that a Location leads to.
fn resolve(base: &str, location: &str, host: &str) -> String {
    let location = location.split('#').next().unwrap_or_default();
    if let Some(rest) = location.strip_prefix("http://") {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        assert_eq!(authority, host, "redirected to another host: {location}");
        return format!("/{path}");
    }
    if location.starts_with('/') {
        return location.to_owned();
    }
    let path = base.split('?').next().unwrap_or_default();
    let folder = path.rfind('/').map_or("", |i| &path[..i]);
    format!("{folder}/{location}")
}

pub fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

pub fn encode_form(fields: &[(String, String)]) -> String {
    let pairs: Vec<String> = fields
        .iter()
        .map(|(n, v)| format!("{}={}", encode(n), encode(v)))
        .collect();
    pairs.join("&")
}

/// Owned fields from literals.
pub fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect()
}

/// The named inputs of the form whose opening tag contains `marker`, with their values; unticked boxes and buttons left out.
#[track_caller]
pub fn form(html: &str, marker: &str) -> Fields {
    let start = html
        .match_indices("<form")
        .map(|(i, _)| i)
        .find(|&i| {
            html[i..]
                .split('>')
                .next()
                .is_some_and(|tag| tag.contains(marker))
        })
        .unwrap_or_else(|| {
            panic!(
                "no form with {marker:?} in: {}",
                html.chars().take(3000).collect::<String>()
            )
        });
    let end = html[start..]
        .find("</form>")
        .map_or(html.len(), |i| start + i);
    let mut found = Fields::new();
    let mut rest = &html[start..end];
    while let Some(at) = rest.find("<input") {
        let tag = rest[at..].split('>').next().unwrap_or_default();
        rest = &rest[at + 6..];
        let kind = attribute(tag, "type").unwrap_or_default();
        let ticked = !matches!(kind.as_str(), "checkbox" | "radio") || tag.contains("checked");
        if let Some(name) = attribute(tag, "name")
            && ticked
            && !matches!(kind.as_str(), "submit" | "file" | "button" | "image")
        {
            found.push((name, attribute(tag, "value").unwrap_or_default()));
        }
    }
    found
}

/// Sets a field, adding it if the form had none of that name.
pub fn set(form: &mut Fields, name: &str, value: &str) {
    form.retain(|(n, _)| n != name);
    form.push((name.to_owned(), value.to_owned()));
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let at = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = tag[at..].split('"').next()?;
    Some(unescape(value))
}

pub fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&#039;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_form() {
        let html = "<form id=\"a\"><input name=\"x\" value=\"1\"></form><form id=\"b\"><input type=\"hidden\" name=\"t\" \
                    value=\"a&amp;b\" /><input type=\"checkbox\" name=\"c\" value=\"1\"><input type=\"submit\" name=\"go\"></form>";
        assert_eq!(form(html, "id=\"b\""), fields(&[("t", "a&b")]));
    }

    #[test]
    fn resolves_locations() {
        assert_eq!(resolve("/a/b?c", "d?e#f", "h:1"), "/a/d?e");
        assert_eq!(resolve("/a/b", "http://h:1/x", "h:1"), "/x");
        assert_eq!(resolve("/a/b", "/y", "h:1"), "/y");
    }
}
