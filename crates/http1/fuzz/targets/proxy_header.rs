//! A PROXY header means the same however its bytes trickle in, and takes no more bytes than there are.
#![no_main]

use baton_http1::{PROXY_HEADER_BYTES_MAX, ProxyHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = ProxyHeader::parse(input);
    match whole {
        Ok(Some(header)) => assert!(header.length <= input.len().min(PROXY_HEADER_BYTES_MAX)),
        Ok(None) => assert!(input.len() < PROXY_HEADER_BYTES_MAX),
        Err(_) => {}
    }
    // The first definite answer is the last.
    for end in 0..input.len() {
        let early = ProxyHeader::parse(&input[..end]);
        assert!(early == Ok(None) || early == whole);
    }
});
