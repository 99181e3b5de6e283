<?php
declare(strict_types=1);

// The example application of `make run`: one page, no framework. Everything on it is asked of PHP at the moment of the request.

session_start(['cookie_httponly' => true, 'cookie_samesite' => 'Lax']);
if (isset($_GET['forget'])) {
    session_destroy();
    header('Location: /', true, 303);
    exit;
}
$visits = $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

function h(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE);
}

$path = (string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$opcache = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
$facts = [
    'Request' => $_SERVER['REQUEST_METHOD'] . ' ' . $_SERVER['REQUEST_URI'],
    'Protocol' => $_SERVER['SERVER_PROTOCOL'],
    'Your address' => $_SERVER['REMOTE_ADDR'] . ' port ' . $_SERVER['REMOTE_PORT'],
    'Server' => $_SERVER['SERVER_SOFTWARE'],
    'PHP' => PHP_VERSION . ', ' . PHP_SAPI . ', opcache ' . ($opcache ? 'on' : 'off'),
    'Process' => 'pid ' . getmypid(),
    'Memory' => number_format(memory_get_usage() / 1024) . ' KiB',
    'Time in PHP' => number_format((microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) * 1000, 2) . ' ms',
];
?>
<!DOCTYPE html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Hello from Baton</title>
    <link rel="stylesheet" href="/style.css">
</head>
<body>
<main>
    <p class="mark" aria-hidden="true"></p>
    <h1>Hello from Baton</h1>
    <p class="lead">This page was made by PHP, in a process of its own, and handed to your browser over shared memory.</p>

    <?php if ($path !== '/' && $path !== '/index.php'): ?>
    <p class="note">There is no file <code><?= h($path) ?></code>, so <code>index.php</code> answered.</p>
    <?php endif ?>

    <section aria-labelledby="session">
        <h2 id="session">Your session</h2>
        <p><output class="count"><?= $visits ?></output> <?= $visits === 1 ? 'visit' : 'visits' ?> so far.
            <a class="button" href="/">Visit again</a> <a href="/?forget">Start over</a></p>
    </section>

    <section aria-labelledby="request">
        <h2 id="request">This request</h2>
        <dl>
            <?php foreach ($facts as $name => $value): ?>
            <dt><?= h($name) ?></dt><dd><?= h($value) ?></dd>
            <?php endforeach ?>
        </dl>
    </section>

    <nav aria-label="Things to try">
        <a href="/any/path?with=a+query">A path without a file</a>
        <a href="/index.php/path/info">Path info</a>
        <a href="/style.css">A file from disk</a>
    </nav>
</main>
</body>
</html>
