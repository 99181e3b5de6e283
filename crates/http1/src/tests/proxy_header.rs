//! The PROXY protocol's header, both versions.

use proptest::prelude::*;

use crate::{NoProxyHeader, Origin, PROXY_HEADER_BYTES_MAX, ProxyHeader};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];

fn tcp(source: &str, destination: &str) -> Origin {
    Origin::Tcp {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn binary(version_and_command: u8, family_and_protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([version_and_command, family_and_protocol]);
    bytes.extend((rest.len() as u16).to_be_bytes());
    bytes.extend(rest);
    bytes
}

/// What is parsed from the bytes with a request behind them: nothing of that may be taken.
fn parsed(header: &[u8]) -> Result<(Origin, bool), NoProxyHeader> {
    let mut bytes = header.to_vec();
    bytes.extend(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let found = ProxyHeader::parse(&bytes)?.expect("whole");
    assert_eq!(found.length, header.len());
    for cut in 0..header.len() {
        assert_eq!(ProxyHeader::parse(&header[..cut]), Ok(None), "cut at {cut}");
    }
    Ok((found.origin, found.tls))
}

#[test]
fn lines() {
    let longest = format!(
        "PROXY TCP6 {0} {0} 65535 65535\r\n",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    );
    let good = [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            tcp("192.0.2.1:56324", "198.51.100.2:443"),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::1 0 65535\r\n",
            tcp("[2001:db8::1]:0", "[::1]:65535"),
        ),
        (
            &longest,
            tcp(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
        ),
        ("PROXY UNKNOWN\r\n", Origin::Unknown),
        (
            "PROXY UNKNOWN ffff::1 whatever it says 1 2\r\n",
            Origin::Unknown,
        ),
    ];
    for (line, origin) in good {
        assert_eq!(parsed(line.as_bytes()), Ok((origin, false)), "{line:?}");
    }
    let bad = [
        "GET / HTTP/1.1\r\n",
        "proxy TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
        " PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
        "PROXY  TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.2 56324 443\r\n",
        "PROXY TCP4 192.0.2 198.51.100.2 56324 443\r\n",
        "PROXY TCP4 2001:db8::1 198.51.100.2 56324 443\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.2 56324 443\r\n",
        "PROXY TCP6 [::1] ::1 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +80 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 080 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 -1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2  443\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.2 1 443\r\n",
        "PROXY unknown\r\n",
        "PROXY \r\n",
        "PROXY\r\n",
    ];
    for line in bad {
        assert!(ProxyHeader::parse(line.as_bytes()).is_err(), "{line:?}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
    assert_eq!(ProxyHeader::parse(&endless.as_bytes()[..106]), Ok(None));
    assert!(ProxyHeader::parse(&endless.as_bytes()[..107]).is_err());
    let late_end = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert!(ProxyHeader::parse(late_end.as_bytes()).is_err());
}

#[test]
fn binaries() {
    let v4 = tcp("192.0.2.1:56324", "198.51.100.2:443");
    let mut v6 = [0; 36];
    (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
    let padded = [&V4[..], &[0x04, 0, 2, 9, 9]].concat();
    let tls = [&V4[..], &[0xe0, 0, 0, 0x20, 0, 5, 0x01, 0, 0, 0, 0]].concat();
    let no_tls = [&V4[..], &[0x20, 0, 5, 0x06, 0, 0, 0, 0]].concat();
    let unix = [&[b'/'; 216][..], &[0x20, 0, 1, 0x07]].concat();
    let good: [(Vec<u8>, Origin, bool); 14] = [
        (binary(0x21, 0x11, &V4), v4, false),
        (binary(0x21, 0x11, &padded), v4, false),
        (binary(0x21, 0x11, &tls), v4, true),
        (binary(0x21, 0x11, &no_tls), v4, false),
        (binary(0x21, 0x21, &v6), tcp("[::1]:3", "[::2]:4"), false),
        (binary(0x21, 0x31, &unix), Origin::Unix, true),
        (binary(0x20, 0x00, &[]), Origin::Proxy, false),
        // What a proxy's own connection carries is skipped, whatever it is.
        (binary(0x20, 0x11, &V4), Origin::Proxy, false),
        (binary(0x20, 0xff, &[1, 2]), Origin::Proxy, false),
        (binary(0x21, 0x00, &[]), Origin::Unknown, false),
        (binary(0x21, 0x00, &[7; 100]), Origin::Unknown, false),
        (binary(0x21, 0x12, &V4), Origin::Unknown, false),
        (binary(0x21, 0x10, &V4), Origin::Unknown, false),
        (binary(0x21, 0x32, &unix), Origin::Unknown, false),
    ];
    for (bytes, origin, tls) in good {
        assert_eq!(parsed(&bytes), Ok((origin, tls)), "{bytes:?}");
    }
    let bad: [Vec<u8>; 9] = [
        binary(0x11, 0x11, &V4),
        binary(0x31, 0x11, &V4),
        binary(0x22, 0x11, &V4),
        binary(0x21, 0x41, &V4),
        binary(0x21, 0x13, &V4),
        binary(0x21, 0x11, &V4[..11]),
        binary(0x21, 0x21, &v6[..35]),
        binary(0x21, 0x11, &[&V4[..], &[4, 0]].concat()),
        binary(0x21, 0x11, &[&V4[..], &[4, 0, 2, 9]].concat()),
    ];
    for bytes in bad {
        assert!(ProxyHeader::parse(&bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn what_is_announced_is_bounded() {
    let mut header = SIGNATURE.to_vec();
    header.extend([0x21, 0x00]);
    let most = (PROXY_HEADER_BYTES_MAX - 16) as u16;
    let announced = |length: u16| [&header[..], &length.to_be_bytes()].concat();
    assert_eq!(ProxyHeader::parse(&announced(most)), Ok(None));
    assert!(ProxyHeader::parse(&announced(most + 1)).is_err());
}

/// Headers that are nearly good.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::collection::vec(
        prop::sample::select(vec![
            "PROXY",
            " ",
            "TCP4",
            "TCP6",
            "UNKNOWN",
            "192.0.2.1",
            "::1",
            "80",
            "0",
            "\r",
            "\n",
            "\r\n",
        ]),
        0..16,
    );
    let fixed = (any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..64));
    prop_oneof![
        line.prop_map(|words| words.concat().into_bytes()),
        fixed.prop_map(|(fixed, rest)| [SIGNATURE, &fixed, &rest].concat()),
        (
            0u8..3,
            any::<u8>(),
            prop::collection::vec(any::<u8>(), 0..64)
        )
            .prop_map(|(command, family, rest)| binary(0x20 | command, family % 64, &rest)),
        prop::collection::vec(any::<u8>(), 0..32),
    ]
}

proptest! {
    /// However the bytes trickle in, and whatever follows them, they mean the same.
    #[test]
    fn more_bytes_change_nothing(bytes in nearly(), more in prop::collection::vec(any::<u8>(), 0..16)) {
        let mut settled = None;
        let all = [&bytes[..], &more].concat();
        for end in 0..=all.len() {
            let now = ProxyHeader::parse(&all[..end]);
            if let Some(before) = settled {
                prop_assert_eq!(now, before);
            } else if now != Ok(None) {
                settled = Some(now);
            }
            if let Ok(Some(header)) = now {
                prop_assert!(header.length <= end);
            }
        }
    }

    #[test]
    fn addresses_come_back(source: std::net::SocketAddrV6, destination: std::net::SocketAddrV6) {
        let line = format!(
            "PROXY TCP6 {} {} {} {}\r\n",
            source.ip(), destination.ip(), source.port(), destination.port(),
        );
        let rest = [
            &source.ip().octets()[..], &destination.ip().octets(),
            &source.port().to_be_bytes(), &destination.port().to_be_bytes(),
        ].concat();
        for bytes in [line.into_bytes(), binary(0x21, 0x21, &rest)] {
            let header = ProxyHeader::parse(&bytes).unwrap().unwrap();
            let Origin::Tcp { source: from, destination: to } = header.origin else {
                panic!("{header:?}");
            };
            prop_assert_eq!((from.ip(), from.port()), ((*source.ip()).into(), source.port()));
            prop_assert_eq!((to.ip(), to.port()), ((*destination.ip()).into(), destination.port()));
        }
    }
}
