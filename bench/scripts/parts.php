<?php
// The same 25 headers and 200,000 bytes as big.php, in 194 writes of 1,024 bytes and one of 1,344.
for ($i = 1; $i <= 25; $i++) {
    header(sprintf('X-Bench-%02d: a header value of %02d', $i, $i));
}
$pattern = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_';
$part = str_repeat($pattern, 16);
for ($i = 0; $i < 194; $i++) {
    echo $part;
}
echo str_repeat($pattern, 21);
