# Puma in cluster mode. @NAMES@ are filled in by bench/lib/peers.py.
environment 'production'
rackup '@ROOT@/config.ru'
bind 'tcp://127.0.0.1:@PORT@?backlog=4096'
# A process per core; as many threads in all as Baton has for PHP. Ruby's lock lets one thread of a process compute at a time.
workers @PROCESSES@
threads @THREADS@, @THREADS@
preload_app!
# Connections rest in Puma's reactor between requests, and are not closed during a run.
queue_requests true
persistent_timeout 75
# While others wait, a thread goes back to them after each request. With the default, ten requests of its own connection, P90
# was thirty times P50: not a setting to compare with (nor was it faster).
max_fast_inline 1
# No log line per request, which is also the default.
quiet
