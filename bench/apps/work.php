<?php
require __DIR__ . '/work-lib.php';
work();
