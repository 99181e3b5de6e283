"""gunicorn with threads. @NAMES@ are filled in by bench/lib/peers.py."""

wsgi_app = "hello_wsgi:application"
chdir = "@ROOT@"
bind = "127.0.0.1:@PORT@"
backlog = 4096
# A process per core; as many threads in all as Baton has for PHP. `sync` workers, eight of them, close each connection after
# its reply and did about half as many requests.
worker_class = "gthread"
workers = @PROCESSES@
threads = @THREADS@
preload_app = True
# Connections are not closed during a run, and no worker is replaced.
keepalive = 75
worker_connections = 4096
max_requests = 0
# The workers' sign of life is a file that they touch: in memory.
worker_tmp_dir = "/dev/shm"
accesslog = None
errorlog = "-"
loglevel = "warning"
