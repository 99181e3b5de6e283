<?php
// What the benchmark must know before it compares two servers: that both run the same PHP in the same way.
$status = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
header('Content-Type: application/json');
echo json_encode([
    'php' => PHP_VERSION,
    'sapi' => PHP_SAPI,
    'opcache' => $status !== false && $status['opcache_enabled'],
    'jit' => $status !== false && ($status['jit']['on'] ?? false),
    'hello_cached' => $status !== false && opcache_is_script_cached(__DIR__ . '/hello.php'),
    'bench_ini' => get_cfg_var('bench.ini_is_read'),
    'max_execution_time' => (int) ini_get('max_execution_time'),
    'max_input_time' => (int) ini_get('max_input_time'),
    'output_buffering' => (int) ini_get('output_buffering'),
    'implicit_flush' => (bool) ini_get('implicit_flush'),
    'extensions' => count(get_loaded_extensions()),
    'user' => function_exists('posix_geteuid') ? posix_geteuid() : null,
]);
