//! The server's options that journeys use, each named once.

pub const LISTEN: &str = "--listen";
pub const THREADS: &str = "--threads";
pub const NUM_THREADS: &str = "--num-threads";
pub const MAX_THREADS: &str = "--max-threads";
pub const THREADS_PER_PROCESS: &str = "--threads-per-process";
pub const IDLE_MS_MAX: &str = "--idle-ms-max";
pub const THREADS_MAX: &str = "--threads-max";
pub const CONFIG: &str = "--config";
pub const TRUSTED_PROXIES: &str = "--trusted-proxies";
pub const TRUSTED_HEADERS: &str = "--trusted-headers";
pub const WORKER: &str = "--worker";
pub const MAX_REQUESTS: &str = "--max-requests";
/// `NAME=VALUE` for the application.
pub const ENV: &str = "--env";
pub const USER: &str = "--user";
pub const ACCESS_LOG: &str = "--access-log";
pub const DEADLINE_MS: &str = "--deadline-ms";
pub const KILL_GRACE_MS: &str = "--kill-grace-ms";
pub const CONNECTIONS_MAX: &str = "--connections-max";
pub const OFFER_MS: &str = "--offer-ms";
pub const QUEUE_LEN_MAX: &str = "--queue-len-max";
pub const QUEUE_WAIT_MS_MAX: &str = "--queue-wait-ms-max";
pub const HEADER_MS: &str = "--header-ms";
pub const BODY_MS: &str = "--body-ms";
pub const KEEP_ALIVE_MS: &str = "--keep-alive-ms";
pub const WRITE_MS: &str = "--write-ms";
pub const BODY_BYTES_MAX: &str = "--body-bytes-max";
pub const REPLY_SPILL_BYTES_MAX: &str = "--reply-spill-bytes-max";
pub const REQUESTS_PER_CONNECTION_MAX: &str = "--requests-per-connection-max";
pub const PATH_CACHE_MS: &str = "--path-cache-ms";
pub const STATIC_MAX_AGE_S: &str = "--static-max-age-s";
/// Without a value.
pub const FOLLOW_SYMLINKS: &str = "--follow-symlinks";
/// `name=value`, which wins over ini_set().
pub const INI_ADMIN: &str = "--ini-admin";
/// `name=value`, which ini_set() may change.
pub const INI_USER: &str = "--ini";
/// With or without a pattern, as in `--watch=src`.
pub const WATCH: &str = "--watch";
pub const ADMIN: &str = "--admin";
pub const ADMIN_TOKEN_FILE: &str = "--admin-token-file";
/// All of them.
pub const ALL: [&str; 35] = [
    ADMIN,
    ADMIN_TOKEN_FILE,
    LISTEN,
    THREADS,
    NUM_THREADS,
    MAX_THREADS,
    IDLE_MS_MAX,
    THREADS_MAX,
    CONFIG,
    WORKER,
    MAX_REQUESTS,
    ENV,
    TRUSTED_PROXIES,
    TRUSTED_HEADERS,
    USER,
    ACCESS_LOG,
    DEADLINE_MS,
    KILL_GRACE_MS,
    OFFER_MS,
    CONNECTIONS_MAX,
    QUEUE_LEN_MAX,
    QUEUE_WAIT_MS_MAX,
    HEADER_MS,
    BODY_MS,
    KEEP_ALIVE_MS,
    WRITE_MS,
    BODY_BYTES_MAX,
    REPLY_SPILL_BYTES_MAX,
    REQUESTS_PER_CONNECTION_MAX,
    PATH_CACHE_MS,
    STATIC_MAX_AGE_S,
    FOLLOW_SYMLINKS,
    INI_ADMIN,
    INI_USER,
    WATCH,
];
