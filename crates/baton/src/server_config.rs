//! What the I/O threads are told, from the options.

use baton_server::http1::Limits;
use baton_server::{Config, Listen};

use crate::options::ServerOptions;

pub fn of(options: &ServerOptions, listeners: Vec<Listen>, log_requests: bool) -> Config {
    let defaults = Config::default();
    Config {
        listeners,
        trusted_proxies: options.trusted_proxies.iter().copied().collect(),
        io_threads: options.io_thread_count(),
        limits: Limits {
            target_bytes_max: options.target_bytes_max as usize,
            head_bytes_max: options.head_bytes_max as usize,
            headers_max: options.headers_max as usize,
            body_bytes_max: options.body_bytes_max,
            ..Limits::default()
        },
        connections_max: options.connections_max as usize,
        requests_per_connection_max: options.requests_per_connection_max,
        header_ms: options.header_ms,
        body_ms: options.body_ms,
        keep_alive_ms: options.keep_alive_ms,
        write_ms: options.write_ms,
        temp_dir: options.temp_dir.clone().unwrap_or(defaults.temp_dir),
        reply_spill_bytes_max: options.reply_spill_bytes_max,
        shutdown_grace_ms: options.shutdown_grace_ms,
        log_requests,
        ..Config::default()
    }
}
