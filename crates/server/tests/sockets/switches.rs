//! The benchmark's switches change how, not what.

use baton_server::{ClockMode, ListenAt, WriteMode};

use crate::client::Client;
use crate::service::{Running, pattern};

#[test]
fn other_modes_give_the_same_replies() {
    let path =
        std::env::temp_dir().join(format!("baton-server-switch-{}.sock", std::process::id()));
    let server = Running::with(|config| {
        config.write_mode = WriteMode::AskFirst;
        config.clock_mode = ClockMode::PerUse;
        let at = ListenAt::Unix {
            path: path.clone(),
            mode: None,
        };
        config.listeners.push(at.into());
    });
    for mut client in [
        Client::tcp(server.address()),
        Client::slow(server.address()),
        Client::unix(&path),
    ] {
        for form in [
            "respond",
            "sized",
            "chunked",
            "windows",
            "sized-windows",
            "file",
        ] {
            for length in [0, 11, 200_000, 2_000_000] {
                let reply = client.get(&format!("/{form}/{length}")).reply();
                assert!(
                    reply.status == 200 && reply.body == pattern(length),
                    "{form} {length}"
                );
            }
        }
        assert_eq!(client.get("/hints").reply().status, 103);
        assert_eq!(client.reply().text(), "hinted");
        client.get("/").get("/").get("/");
        (0..3).for_each(|_| assert_eq!(client.reply().text(), "Hello, world!"));
    }
}
