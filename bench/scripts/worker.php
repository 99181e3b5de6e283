<?php
// hello.php, big.php and parts.php as a worker: booted once, then a loop. The path says which.
$pattern = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_';
$big = str_repeat($pattern, 3125);
$part = str_repeat($pattern, 16);
$rest = str_repeat($pattern, 21);
$names = [];
for ($i = 1; $i <= 25; $i++) {
    $names[] = sprintf('X-Bench-%02d: a header value of %02d', $i, $i);
}
$handler = static function () use ($big, $part, $rest, $names): void {
    $path = $_SERVER['REQUEST_URI'];
    if ($path === '/worker/hello') {
        echo 'Hello, world!';
        return;
    }
    foreach ($names as $line) {
        header($line);
    }
    if ($path === '/worker/big') {
        echo $big;
        return;
    }
    for ($i = 0; $i < 194; $i++) {
        echo $part;
    }
    echo $rest;
};
while (frankenphp_handle_request($handler)) {
}
