<?php
require __DIR__ . '/work-lib.php';
while (frankenphp_handle_request(work(...))) {
}
