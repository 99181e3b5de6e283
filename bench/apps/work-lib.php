<?php
// The work of the six loads in bench/scenarios: sleep, add, print; `times` times over. Without parameters: a hello.
// work.php does it once, work-worker.php as a worker.
//
//     sleep_ms   0 to 60000     waits, as for a database
//     additions  0 to 10000000  keeps the CPU busy
//     lines      0 to 10000     output, 64 bytes each
//     times      1 to 10
function parameter(string $name, int $default, int $max): int
{
    return max(0, min($max, (int) ($_GET[$name] ?? $default)));
}

function work(): void
{
    $sleep_us = 1000 * parameter('sleep_ms', 0, 60000);
    $additions = parameter('additions', 0, 10000000);
    $lines = parameter('lines', 0, 10000);
    $times = parameter('times', 1, 10);

    header('Content-Type: text/plain');
    $sum = 0;
    while ($times-- > 0) {
        if ($sleep_us > 0) {
            usleep($sleep_us);
        }
        for ($i = 1; $i <= $additions; $i++) {
            $sum += $i;
        }
        for ($i = 0; $i < $lines; $i++) {
            echo "A line of output as a template would print it, of 64 bytes. ...\n";
        }
    }
    // The last word, which tells a whole reply from a cut one; the sum keeps the additions from being optimised away.
    echo "Hello, world! $sum done\n";
}
