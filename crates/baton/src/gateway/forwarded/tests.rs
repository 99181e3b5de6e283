use std::net::IpAddr;

use baton_server::http1::Header;
use clap::ValueEnum;
use proptest::prelude::*;

use super::*;

/// The proxies are 10.0.0.0/8.
fn trusts(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10)
}

fn told_of<'h>(headers: &[(&'h str, &'h str)], read: &[TrustedHeader]) -> Told<'h> {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| Header {
            name,
            value: value.as_bytes(),
        })
        .collect();
    told(headers.iter().copied(), read, trusts)
}

fn all<'h>(headers: &[(&'h str, &'h str)]) -> Told<'h> {
    told_of(headers, TrustedHeader::value_variants())
}

fn client(headers: &[(&str, &str)]) -> Option<String> {
    let node = all(headers).client?;
    Some(match node.port {
        Some(port) => format!("{} {port}", node.address),
        None => node.address.to_string(),
    })
}

#[test]
fn the_names_are_those_of_the_options() {
    for header in TrustedHeader::value_variants() {
        let value = header.to_possible_value().expect("not skipped");
        assert_eq!(value.get_name(), header.name());
    }
}

#[test]
fn x_forwarded_for_is_walked_from_the_right() {
    let cases: [(&[&str], Option<&str>); 20] = [
        (&["192.0.2.1"], Some("192.0.2.1")),
        (&["6.6.6.6, 192.0.2.1"], Some("192.0.2.1")),
        (&["6.6.6.6, 192.0.2.1, 10.0.0.1"], Some("192.0.2.1")),
        (&["192.0.2.1,10.0.0.2 ,\t10.0.0.1"], Some("192.0.2.1")),
        // Repeated lines are one list.
        (&["6.6.6.6", "192.0.2.1", "10.0.0.1"], Some("192.0.2.1")),
        (&["192.0.2.1, ,", ", 10.0.0.1,"], Some("192.0.2.1")),
        // All of them are proxies: the farthest one asks.
        (&["10.0.0.3, 10.0.0.2"], Some("10.0.0.3")),
        (&["::ffff:192.0.2.1, ::ffff:10.0.0.1"], Some("192.0.2.1")),
        (&["192.0.2.1:4711"], Some("192.0.2.1 4711")),
        (&["[2001:db8::1]:4711"], Some("2001:db8::1 4711")),
        (&["[2001:db8::1]"], Some("2001:db8::1")),
        (&["2001:db8::1"], Some("2001:db8::1")),
        // What does not parse ends the walk at the last proxy that is known.
        (&["192.0.2.1, unknown, 10.0.0.1"], Some("10.0.0.1")),
        (&["192.0.2.1, 10.0.0.1 10.0.0.2"], None),
        (&["unknown"], None),
        (&["192.0.2.1:0"], None),
        (&["192.0.2.01"], None),
        (&["2001:db8::1:99999"], None),
        (&["[192.0.2.1]"], None),
        (&["<script>"], None),
    ];
    for (lines, expected) in cases {
        let headers: Vec<_> = lines
            .iter()
            .map(|line| ("X-Forwarded-For", *line))
            .collect();
        assert_eq!(client(&headers).as_deref(), expected, "{lines:?}");
    }
    // A client that sends other bytes than text spoils its own element only.
    let headers = [Header {
        name: "x-forwarded-for",
        value: b"\xff, 192.0.2.1",
    }];
    let told = told(headers.into_iter(), TrustedHeader::value_variants(), trusts);
    assert!(told.client.is_some());
}

#[test]
fn the_other_lists_are_read_at_the_same_distance() {
    let lists = |for_: &'static str, proto: &'static str| {
        let headers = [("X-Forwarded-For", for_), ("X-Forwarded-Proto", proto)];
        all(&headers).scheme
    };
    assert_eq!(lists("192.0.2.1", "https"), Some(Scheme::Https));
    assert_eq!(lists("192.0.2.1", "HTTPS"), Some(Scheme::Https));
    assert_eq!(lists("192.0.2.1", "https, http"), Some(Scheme::Http));
    assert_eq!(
        lists("192.0.2.1, 10.0.0.1", "https, http"),
        Some(Scheme::Https)
    );
    assert_eq!(
        lists("192.0.2.1, 10.0.0.1", "http, https, http"),
        Some(Scheme::Https)
    );
    // Replaced on the way.
    assert_eq!(
        lists("192.0.2.1, 10.0.0.2, 10.0.0.1", "https"),
        Some(Scheme::Https)
    );
    assert_eq!(
        lists("unknown, 10.0.0.1", "https, http"),
        Some(Scheme::Https)
    );
    assert_eq!(
        lists("10.0.0.2, 10.0.0.1", "http, https, http"),
        Some(Scheme::Https)
    );
    for wrong in ["on", "https:", "https http", "ftp", "h\u{e9}"] {
        assert_eq!(lists("192.0.2.1", wrong), None, "{wrong}");
    }
    assert_eq!(
        all(&[("X-Forwarded-Proto", "https")]).scheme,
        Some(Scheme::Https)
    );
}

#[test]
fn hosts_and_ports_are_checked() {
    let host = |value| all(&[("X-Forwarded-Host", value)]).host;
    assert_eq!(host("example.com"), Some("example.com"));
    assert_eq!(
        host("evil.example, example.com:8443"),
        Some("example.com:8443")
    );
    assert_eq!(host("[::1]:80"), Some("[::1]:80"));
    for wrong in [
        "a/b", "a@b", "a b", "..", "a\"b", "<script>", "a:99999", "?",
    ] {
        assert_eq!(host(wrong), None, "{wrong}");
    }
    let port = |value| all(&[("X-Forwarded-Port", value)]).port;
    assert_eq!(port("443"), Some(443));
    assert_eq!(port("80, 8443"), Some(8443));
    for wrong in ["0", "+80", "-1", "65536", "80a", "8 0"] {
        assert_eq!(port(wrong), None, "{wrong}");
    }
}

#[test]
fn forwarded_elements() {
    let cases: [(&[&str], Option<&str>); 19] = [
        (&["for=192.0.2.43"], Some("192.0.2.43")),
        (&["For=192.0.2.43;Proto=https"], Some("192.0.2.43")),
        (&["for=\"[2001:db8::1]:4711\""], Some("2001:db8::1 4711")),
        (
            &["for=\"192.0.2.43:80\" ; by=10.0.0.1"],
            Some("192.0.2.43 80"),
        ),
        (
            &["for=6.6.6.6, for=192.0.2.43, for=10.0.0.1"],
            Some("192.0.2.43"),
        ),
        (
            &["for=6.6.6.6", "for=192.0.2.43", "for=10.0.0.1"],
            Some("192.0.2.43"),
        ),
        (&[";for=192.0.2.43;,, ;"], Some("192.0.2.43")),
        (
            &["for=192.0.2.43;ext=\"a,b;for=6.6.6.6\""],
            Some("192.0.2.43"),
        ),
        (
            &["for=192.0.2.43, for=unknown, for=10.0.0.1"],
            Some("10.0.0.1"),
        ),
        (
            &["for=192.0.2.43, for=\"_hidden\", for=10.0.0.1"],
            Some("10.0.0.1"),
        ),
        (
            &["for=192.0.2.43, proto=https, for=10.0.0.1"],
            Some("10.0.0.1"),
        ),
        // A client's quote would swallow what the proxy appends.
        (&["for=\"6.6.6.6, for=192.0.2.43"], None),
        (&["for=\"6.6.6.6\\\", for=192.0.2.43"], None),
        (&["ext=\"a\\\"b\";for=192.0.2.43"], Some("192.0.2.43")),
        (&["for=\"6.6.6.6", "for=10.0.0.1"], Some("10.0.0.1")),
        (&["for=192.0.2.43;for=6.6.6.6"], None),
        (&["for=192.0.2.43 proto=https"], None),
        (&["for 192.0.2.43"], None),
        (&["for="], None),
    ];
    for (lines, expected) in cases {
        let headers: Vec<_> = lines.iter().map(|line| ("Forwarded", *line)).collect();
        assert_eq!(client(&headers).as_deref(), expected, "{lines:?}");
    }
    let told = all(&[(
        "Forwarded",
        "for=6.6.6.6;proto=http;host=evil, for=192.0.2.1;proto=https;host=\"example.com:8443\", for=10.0.0.1;proto=http",
    )]);
    assert_eq!(
        (told.scheme, told.host),
        (Some(Scheme::Https), Some("example.com:8443"))
    );
    // The outer proxy keeps the scheme to itself: the inner one's word stands.
    let told = all(&[("Forwarded", "for=192.0.2.1, for=10.0.0.1;proto=https")]);
    assert_eq!(told.scheme, Some(Scheme::Https));
    assert_eq!(
        all(&[("Forwarded", "for=192.0.2.1;host=\"a/b\"")]).host,
        None
    );
    let long = "for=192.0.2.1,".repeat(ELEMENTS_MAX + 1);
    assert_eq!(client(&[("Forwarded", &long)]), None);
}

#[test]
fn one_family_is_read_and_only_what_was_asked_for() {
    let both = [
        ("Forwarded", "for=6.6.6.6;host=evil"),
        ("X-Forwarded-Proto", "https"),
    ];
    let told = all(&both);
    assert_eq!(
        (told.client, told.host, told.scheme),
        (None, None, Some(Scheme::Https))
    );
    let told = told_of(&both, &[TrustedHeader::Forwarded]);
    assert_eq!((told.host, told.scheme), (Some("evil"), None));
    assert_eq!(
        told_of(&both, &[TrustedHeader::XForwardedHost]),
        Told::default()
    );
    assert_eq!(told_of(&both, &[]), Told::default());
}

fn address() -> impl Strategy<Value = IpAddr> {
    let proxy = any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c]));
    prop_oneof![any::<IpAddr>(), proxy].prop_map(|address| address.to_canonical())
}

proptest! {
    /// Any text at all: no panic, and nothing comes out that was not checked.
    #[test]
    fn nothing_comes_out_unchecked(values in prop::collection::vec(("[ -~]{0,40}|(for|proto|host|by)=\"?[a-z0-9:.\\[\\]]{0,12}\"?[;,]?", 0..5usize), 0..8)) {
        let names = TrustedHeader::value_variants();
        let headers: Vec<_> = values.iter().map(|(value, name)| (names[*name].name(), value.as_str())).collect();
        let told = all(&headers);
        prop_assert!(told.host.is_none_or(is_host_and_port));
        prop_assert!(told.port != Some(0));
    }

    /// Whatever a client sends, what the proxies append decides.
    #[test]
    fn the_clients_own_header_does_not_matter(
        sent in "[ -~]{0,60}",
        seen in address().prop_filter("a client", |address| !trusts(*address)),
        proxies in prop::collection::vec(any::<[u8; 3]>(), 0..4),
    ) {
        let mut appended = seen.to_string();
        for [a, b, c] in proxies {
            appended.push_str(&format!(", 10.{a}.{b}.{c}"));
        }
        let joined = format!("{sent}, {appended}");
        let told = all(&[("X-Forwarded-For", &joined)]);
        prop_assert_eq!(told.client.map(|node| node.address), Some(seen));
        let told = all(&[("X-Forwarded-For", &sent), ("X-Forwarded-For", &appended)]);
        prop_assert_eq!(told.client.map(|node| node.address), Some(seen));
    }

    /// Both ways of writing the same chain say the same.
    #[test]
    fn both_families_agree(chain in prop::collection::vec((address(), prop::option::of(1u16..)), 1..6)) {
        let text = |(address, port): &(IpAddr, Option<u16>)| match (address, port) {
            (IpAddr::V4(v4), None) => v4.to_string(),
            (IpAddr::V4(v4), Some(port)) => format!("{v4}:{port}"),
            (IpAddr::V6(v6), None) => format!("[{v6}]"),
            (IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
        };
        let chain: Vec<String> = chain.iter().map(text).collect();
        let x_forwarded = chain.join(", ");
        let forwarded = chain.iter().map(|node| format!("for=\"{node}\"")).collect::<Vec<_>>().join(", ");
        let one = all(&[("X-Forwarded-For", &x_forwarded)]);
        let other = all(&[("Forwarded", &forwarded)]);
        prop_assert_eq!(one.client, other.client);
        prop_assert!(one.client.is_some());
    }
}
