//! What HTTP lets a client say about a file: conditions, ranges, codings. Each case for a small file, which the server
//! keeps in memory, and for a large one, which goes out by sendfile.

use std::fs;
use std::time::{Duration, SystemTime};

use baton_journeys::client::request;
use baton_journeys::options::{PATH_CACHE_MS, STATIC_MAX_AGE_S};
use baton_journeys::{Baton, Cases, Reply, Site, pattern};

const SMALL: usize = 1_000;
const LARGE: usize = 3_000_000;
const FILES: [(&str, usize); 2] = [("/small.bin", SMALL), ("/large.bin", LARGE)];

fn serve() -> (Site, Baton) {
    let site = Site::with_index("<?php echo 'index answered';");
    for (name, len) in FILES {
        site.write(&name[1..], pattern(len));
    }
    site.write("empty.txt", "");
    let server = Baton::serve(site.root());
    (site, server)
}

fn ask(server: &Baton, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    server.send(request(method, target, headers, b""))
}

fn get(server: &Baton, target: &str, headers: &[(&str, &str)]) -> Reply {
    ask(server, "GET", target, headers)
}

#[track_caller]
fn header(reply: &Reply, name: &str) -> String {
    let found = reply.header(name);
    found
        .unwrap_or_else(|| panic!("no {name} in {:?}", reply.head.headers))
        .to_owned()
}

#[test]
fn conditional_requests() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    for (file, len) in FILES {
        let whole = get(&server, file, &[]).expect(200);
        let (tag, date) = (header(&whole, "etag"), header(&whole, "last-modified"));
        assert!(
            tag.starts_with('"') && tag.ends_with('"'),
            "a strong tag: {tag}"
        );
        let weak = format!("W/{tag}");
        let long_ago = "Sat, 01 Jan 2000 00:00:00 GMT";
        let in_future = "Fri, 01 Jan 2100 00:00:00 GMT";
        let several = format!("\"other\", {tag}");
        let table: &[(&[(&str, &str)], u16)] = &[
            (&[("If-None-Match", &tag)], 304),
            (&[("If-None-Match", &weak)], 304),
            (&[("If-None-Match", &several)], 304),
            (&[("If-None-Match", "*")], 304),
            (&[("If-None-Match", "\"other\"")], 200),
            (
                &[("If-None-Match", "\"other\""), ("If-None-Match", &tag)],
                304,
            ),
            (&[("If-Modified-Since", &date)], 304),
            (&[("If-Modified-Since", in_future)], 304),
            (&[("If-Modified-Since", long_ago)], 200),
            (&[("If-Modified-Since", "not a date")], 200),
            (
                &[("If-None-Match", "\"other\""), ("If-Modified-Since", &date)],
                200,
            ),
            (&[("If-Match", &tag)], 200),
            (&[("If-Match", "*")], 200),
            (&[("If-Match", &weak)], 412),
            (&[("If-Match", "\"other\"")], 412),
            (&[("If-Unmodified-Since", &date)], 200),
            (&[("If-Unmodified-Since", long_ago)], 412),
            (
                &[("If-Match", &tag), ("If-Unmodified-Since", long_ago)],
                200,
            ),
            (&[("If-Match", "\"other\""), ("If-None-Match", &tag)], 412),
        ];
        for (headers, status) in table {
            for method in ["GET", "HEAD"] {
                cases.case(&format!("{method} {file} {headers:?}"), || {
                    let reply = ask(&server, method, file, headers).expect(*status);
                    match status {
                        200 if method == "GET" => assert!(reply.body == pattern(len)),
                        304 => {
                            assert_eq!(header(&reply, "etag"), tag);
                            assert!(reply.header("content-type").is_none());
                            assert!(reply.body.is_empty());
                        }
                        _ => {}
                    }
                });
            }
        }
        cases.case("the connection goes on behind each", || {
            let mut conn = server.connect();
            for status in [200, 304, 412, 416, 206, 200] {
                let header = match status {
                    304 => "If-None-Match: *\r\n",
                    412 => "If-Match: \"other\"\r\n",
                    416 => "Range: bytes=9000000-\r\n",
                    206 => "Range: bytes=-1\r\n",
                    _ => "",
                };
                let reply = conn.ask(format!("GET {file} HTTP/1.1\r\nHost: a\r\n{header}\r\n"));
                reply.expect("a reply").expect(status);
            }
        });
    }
    cases.finish();
}

#[test]
fn a_file_that_just_changed_has_a_weak_tag() {
    let (site, server) = serve();
    // In the future, so that no pause of the machine makes it old.
    let file = fs::File::options()
        .write(true)
        .open(site.write("new.txt", "new"))
        .expect("there");
    file.set_modified(SystemTime::now() + Duration::from_secs(3600))
        .expect("a time");
    let reply = get(&server, "/new.txt", &[]).expect(200);
    let tag = header(&reply, "etag");
    assert!(tag.starts_with("W/\""), "{tag}");
    assert_eq!(header(&reply, "last-modified"), header(&reply, "date"));
    get(&server, "/new.txt", &[("If-None-Match", &tag)]).expect(304);
    get(
        &server,
        "/new.txt",
        &[("Range", "bytes=0-0"), ("If-Range", &tag)],
    )
    .expect(200);
}

#[test]
fn single_ranges() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    for (file, len) in FILES {
        let whole = pattern(len);
        for (range, first, last) in [
            ("bytes=0-0".to_owned(), 0, 0),
            ("bytes=0-99".into(), 0, 99),
            ("bytes=100-".into(), 100, len - 1),
            ("bytes=-100".into(), len - 100, len - 1),
            ("bytes=0-".into(), 0, len - 1),
            ("bytes=-99999999".into(), 0, len - 1),
            ("bytes=10-99999999999999999999999".into(), 10, len - 1),
            (format!("bytes={}-", len - 1), len - 1, len - 1),
            ("bytes=0-99,50-199".into(), 0, 199),
            (format!("bytes=5-9, {len}-"), 5, 9),
        ] {
            cases.case(&format!("{file} {range}"), || {
                let reply = get(&server, file, &[("Range", &range)]).expect(206);
                assert_eq!(
                    header(&reply, "content-range"),
                    format!("bytes {first}-{last}/{len}")
                );
                assert_eq!(
                    header(&reply, "content-length"),
                    (last - first + 1).to_string()
                );
                assert!(reply.body == whole[first..=last]);
            });
        }
        for range in ["bytes=5-2", "bytes=a-b", "lines=0-1", "bytes=", "bytes 0-1"] {
            cases.case(&format!("{file} {range} is ignored"), || {
                let reply = get(&server, file, &[("Range", range)]).expect(200);
                assert!(reply.body == whole);
            });
        }
        for range in [format!("bytes={len}-"), "bytes=-0".into()] {
            cases.case(&format!("{file} {range} is not there"), || {
                let reply = get(&server, file, &[("Range", &range)]).expect(416);
                assert_eq!(header(&reply, "content-range"), format!("bytes */{len}"));
            });
        }
        cases.case(&format!("{file} HEAD has no ranges"), || {
            let reply = ask(&server, "HEAD", file, &[("Range", "bytes=0-9")]).expect(200);
            assert_eq!(header(&reply, "content-length"), len.to_string());
            assert_eq!(header(&reply, "accept-ranges"), "bytes");
        });
        cases.case(&format!("{file} If-Range"), || {
            let reply = get(&server, file, &[]).expect(200);
            let (tag, date) = (header(&reply, "etag"), header(&reply, "last-modified"));
            let weak = format!("W/{tag}");
            for (value, status) in [
                (tag.as_str(), 206),
                (&date, 206),
                (&weak, 200),
                ("\"other\"", 200),
                ("Fri, 01 Jan 2100 00:00:00 GMT", 200),
            ] {
                let headers = [("Range", "bytes=0-9"), ("If-Range", value)];
                let reply = get(&server, file, &headers).expect(status);
                let expected = if status == 206 {
                    &whole[..10]
                } else {
                    &whole[..]
                };
                assert!(reply.body == expected, "{value}");
            }
            let headers = [("Range", "bytes=0-9"), ("If-None-Match", &tag)];
            get(&server, file, &headers).expect(304);
        });
    }
    cases.case("an empty file has no ranges", || {
        for range in ["bytes=0-", "bytes=-5"] {
            let reply = get(&server, "/empty.txt", &[("Range", range)]).expect(200);
            assert_eq!(header(&reply, "content-length"), "0");
        }
    });
    cases.finish();
}

/// The parts of a multipart/byteranges body: each one's Content-Range and bytes.
#[track_caller]
fn parts(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let media_type = header(reply, "content-type");
    let boundary = media_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| panic!("{media_type}"));
    let find = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).position(|w| w == wanted);
    let delimiter = format!("\r\n--{boundary}");
    // As if there were an empty preamble.
    let mut rest = [b"\r\n", &reply.body[..]].concat();
    let mut parts = Vec::new();
    loop {
        assert!(rest.starts_with(delimiter.as_bytes()));
        rest.drain(..delimiter.len());
        if rest == b"--\r\n" {
            return parts;
        }
        let head_end = find(&rest, b"\r\n\r\n").expect("the end of a part's head");
        let head = String::from_utf8(rest[..head_end].to_vec()).expect("text");
        let range = head
            .split("\r\n")
            .find_map(|line| line.strip_prefix("Content-Range: "))
            .unwrap_or_else(|| panic!("{head}"));
        assert!(
            head.contains("Content-Type: application/octet-stream"),
            "{head}"
        );
        let body_start = head_end + 4;
        let end = find(&rest[body_start..], delimiter.as_bytes()).expect("a delimiter");
        parts.push((range.to_owned(), rest[body_start..][..end].to_vec()));
        rest.drain(..body_start + end);
    }
}

#[test]
fn several_ranges() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    for (file, len) in FILES {
        let whole = pattern(len);
        for (range, expected) in [
            ("bytes=0-9,500-599", vec![(0, 9), (500, 599)]),
            ("bytes=500-599, 0-9", vec![(500, 599), (0, 9)]),
            (
                "bytes=0-9,200-209,-10",
                vec![(0, 9), (200, 209), (len - 10, len - 1)],
            ),
            ("bytes=0-9,400-,300-500", vec![(0, 9), (300, len - 1)]),
        ] {
            cases.case(&format!("{file} {range}"), || {
                let reply = get(&server, file, &[("Range", range)]).expect(206);
                assert!(reply.header("content-range").is_none());
                let found = parts(&reply);
                assert_eq!(found.len(), expected.len());
                for ((head, body), (first, last)) in found.iter().zip(&expected) {
                    assert_eq!(*head, format!("bytes {first}-{last}/{len}"));
                    assert!(*body == whole[*first..=*last], "{head}");
                }
            });
        }
        cases.case(&format!("{file} too many"), || {
            let all: Vec<String> = (0..100).map(|i| format!("{i}-{i}")).collect();
            let range = format!("bytes={}", all.join(","));
            assert!(get(&server, file, &[("Range", &range)]).expect(200).body == whole);
        });
    }
    cases.case(
        "a slow reader gets all parts, and the connection goes on",
        || {
            let mut conn = server.connect();
            let range = [("Range", "bytes=0-999999,1500000-")];
            conn.send(request("GET", "/large.bin", &range, b""))
                .expect("sent");
            let (head, interim) = conn.head("GET").expect("a head");
            let mut body = Vec::new();
            while let Some(piece) = conn.piece(100_000).expect("a piece") {
                body.extend_from_slice(&piece);
                std::thread::sleep(Duration::from_millis(2));
            }
            let reply = Reply {
                head,
                interim,
                body,
            };
            let whole = pattern(LARGE);
            let found = parts(&reply);
            assert!(found[0].1 == whole[..1_000_000] && found[1].1 == whole[1_500_000..]);
            let reply = conn.ask(request("GET", "/small.bin", &[], b""));
            reply.expect("a reply").expect(200);
        },
    );
    cases.finish();
}

#[test]
fn codings_beside_the_file() {
    let (site, server) = serve();
    // Not what a compressor makes of them, so that a test can tell who was sent.
    for (name, len) in [("small.css", 100), ("large.css", 200_000)] {
        site.write(name, "p".repeat(len));
        site.write(&format!("{name}.br"), "b".repeat(len / 2));
        site.write(&format!("{name}.gz"), "g".repeat(len / 2 + 1));
    }
    site.write("only.js", "plain");
    site.write("only.js.gz", "zipped");
    site.write("stale.js", "new");
    let stale = site.write("stale.js.gz", "made from the old one");
    fs::File::options()
        .write(true)
        .open(stale)
        .expect("there")
        .set_modified(SystemTime::now() - Duration::from_secs(3600))
        .expect("a time");
    site.write("none.js", "plain");
    let mut cases = Cases::new();
    for (target, len) in [("/small.css", 100), ("/large.css", 200_000)] {
        let variants = [
            ("br", "b".repeat(len / 2)),
            ("gzip", "g".repeat(len / 2 + 1)),
            ("", "p".repeat(len)),
        ];
        for (accept, coding) in [
            ("gzip, deflate, br, zstd", "br"),
            ("gzip, deflate", "gzip"),
            ("br;q=0.1, gzip;q=0.2", "gzip"),
            ("br;q=0, *", "gzip"),
            ("br;q=0,gzip;q=0", ""),
            ("identity", ""),
            ("identity;q=1, br;q=0.5", ""),
            ("deflate", ""),
            ("", ""),
        ] {
            cases.case(&format!("{target} {accept:?}"), || {
                let reply = get(&server, target, &[("Accept-Encoding", accept)]).expect(200);
                assert_eq!(reply.header("content-encoding").unwrap_or_default(), coding);
                assert_eq!(header(&reply, "vary"), "Accept-Encoding");
                assert_eq!(header(&reply, "content-type"), "text/css; charset=utf-8");
                let (_, body) = variants
                    .iter()
                    .find(|(name, _)| *name == coding)
                    .expect("a variant");
                assert!(reply.text() == *body);
            });
        }
        cases.case(&format!("{target} each coding has its own tag"), || {
            let tag = |accept| {
                let reply = get(&server, target, &[("Accept-Encoding", accept)]);
                header(&reply, "etag")
            };
            let (plain, gzip, brotli) = (tag(""), tag("gzip"), tag("br"));
            assert!(plain != gzip && gzip != brotli && plain != brotli);
            let headers = [("Accept-Encoding", "br"), ("If-None-Match", &plain)];
            get(&server, target, &headers).expect(200);
            let headers = [("Accept-Encoding", "br"), ("If-None-Match", &brotli)];
            let reply = get(&server, target, &headers).expect(304);
            assert_eq!(header(&reply, "vary"), "Accept-Encoding");
        });
        cases.case(&format!("{target} ranges are of what is sent"), || {
            let headers = [("Accept-Encoding", "br"), ("Range", "bytes=-5")];
            let reply = get(&server, target, &headers).expect(206);
            assert_eq!(reply.text(), "bbbbb");
            let half = len / 2;
            assert_eq!(
                header(&reply, "content-range"),
                format!("bytes {}-{}/{half}", half - 5, half - 1)
            );
            assert_eq!(header(&reply, "content-encoding"), "br");
        });
        cases.case(&format!("{target} HEAD"), || {
            let reply = ask(&server, "HEAD", target, &[("Accept-Encoding", "br")]).expect(200);
            assert_eq!(header(&reply, "content-length"), (len / 2).to_string());
        });
    }
    cases.case("only one is there", || {
        let all = [("Accept-Encoding", "gzip, br")];
        assert_eq!(get(&server, "/only.js", &all).text(), "zipped");
    });
    cases.case("one that is older than the file is not sent", || {
        let reply = get(&server, "/stale.js", &[("Accept-Encoding", "gzip")]).expect(200);
        assert_eq!((reply.text().as_str(), reply.header("vary")), ("new", None));
    });
    cases.case("without a sibling nothing varies", || {
        let reply = get(&server, "/none.js", &[("Accept-Encoding", "gzip")]).expect(200);
        assert_eq!(reply.header("vary"), None);
        assert_eq!(reply.header("content-encoding"), None);
    });
    cases.case("the sibling itself", || {
        let reply = get(&server, "/only.js.gz", &[("Accept-Encoding", "gzip")]).expect(200);
        assert_eq!(header(&reply, "content-type"), "application/gzip");
        assert_eq!(reply.header("content-encoding"), None);
    });
    cases.finish();
}

#[test]
fn caching_by_clients() {
    let (site, server) = serve();
    let reply = get(&server, "/small.bin", &[]).expect(200);
    assert_eq!(reply.header("cache-control"), None);
    drop(server);
    let server = Baton::with(site.root(), &[STATIC_MAX_AGE_S, "3600"]);
    let table: [(&[(&str, &str)], u16); 3] = [
        (&[], 200),
        (&[("If-None-Match", "*")], 304),
        (&[("Range", "bytes=0-0")], 206),
    ];
    for (headers, status) in table {
        let reply = get(&server, "/small.bin", headers).expect(status);
        assert_eq!(header(&reply, "cache-control"), "max-age=3600");
    }
    let reply = server.get("/missing").expect(200);
    assert_eq!(reply.header("cache-control"), None);
}

/// With a minute of memory, what happens on the disk is not seen: so nothing was looked at.
#[test]
fn what_is_remembered_is_not_looked_at() {
    let (site, server) = serve();
    drop(server);
    let server = Baton::with(site.root(), &[PATH_CACHE_MS, "60000"]);
    assert_eq!(server.get("/page").text(), "index answered");
    for (file, len) in FILES {
        assert!(server.get(file).body == pattern(len));
    }
    site.write("page", "now a file");
    assert_eq!(server.get("/page").text(), "index answered");
    for (file, len) in FILES {
        fs::remove_file(site.path(&file[1..])).expect("removed");
        assert!(server.get(file).expect(200).body == pattern(len));
    }
}

#[test]
fn without_memory_every_change_is_seen() {
    let (site, server) = serve();
    drop(server);
    let server = Baton::with(site.root(), &[PATH_CACHE_MS, "0"]);
    for (file, len) in FILES {
        let first = server.get(file).expect(200);
        assert!(first.body == pattern(len));
        site.write(&file[1..], pattern(len / 2));
        let tag = header(&first, "etag");
        let changed = get(&server, file, &[("If-None-Match", &tag)]).expect(200);
        assert!(changed.body == pattern(len / 2));
        fs::remove_file(site.path(&file[1..])).expect("removed");
        assert_eq!(server.get(file).text(), "index answered");
    }
    site.write("page", "now a file");
    assert_eq!(server.get("/page").text(), "now a file");
}

/// More files than are remembered push the first one out, but not what its path was found to mean.
#[test]
fn a_path_that_has_lost_its_file_is_the_applications() {
    const MANY: usize = 1_100;
    let (site, server) = serve();
    drop(server);
    let server = Baton::with(site.root(), &[PATH_CACHE_MS, "60000"]);
    for number in 0..MANY {
        site.write(&format!("{number}.txt"), "");
    }
    let mut conn = server.connect();
    for number in 0..MANY {
        let reply = conn.ask(format!("GET /{number}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.expect("a reply").expect(200).body, b"");
    }
    fs::remove_file(site.path("0.txt")).expect("removed");
    assert_eq!(server.get("/0.txt").text(), "index answered");
}
