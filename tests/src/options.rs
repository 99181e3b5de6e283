//! The server's options that journeys use, each named once.

pub const LISTEN: &str = "--listen";
pub const THREADS: &str = "--threads";
pub const ACCESS_LOG: &str = "--access-log";
pub const DEADLINE_MS: &str = "--deadline-ms";
pub const CONNECTIONS_MAX: &str = "--max-connections";
pub const QUEUE_LENGTH_MAX: &str = "--queue-length";
pub const QUEUE_WAIT_MS_MAX: &str = "--queue-wait-ms";
pub const HEADER_MS: &str = "--header-timeout-ms";
pub const KEEP_ALIVE_MS: &str = "--keep-alive-timeout-ms";
pub const WRITE_MS: &str = "--write-timeout-ms";
pub const BODY_BYTES_MAX: &str = "--max-body-bytes";
pub const REQUESTS_PER_CONNECTION_MAX: &str = "--max-requests-per-connection";
/// `name=value`, which wins over ini_set().
pub const INI_ADMIN: &str = "--ini-admin";
/// `name=value`, which ini_set() may change.
pub const INI_USER: &str = "--ini";
/// How long a body may pause.
pub const BODY_MS: &str = "--body-timeout-ms";
