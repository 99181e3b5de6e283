<?php
// 25 headers and one string of 200,000 bytes.
for ($i = 1; $i <= 25; $i++) {
    header(sprintf('X-Bench-%02d: a header value of %02d', $i, $i));
}
echo str_repeat('0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_', 3125);
