<?php
// Busy for a moment, so that requests sent together spread over all threads.
usleep(20000);
echo getmypid();
