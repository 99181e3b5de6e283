"""Other servers, each with a hello of its own in its own language: what a request costs there, for reference.

One more is a class below, a file with its settings in bench/peers, a line in lib/available.py, and its name in ORDER."""

import os
import shutil

from lib import paths, servers, targets

# Eight application threads each, as Baton has for PHP: eight processes, or a process per core with four threads.
PROCESSES, THREADS = 2, targets.THREADS // 2
# As they are shown. Baton, php-fpm and what has no application stand beside them.
ORDER = ["baton", "baton-worker", "php-fpm", "frankenphp", "puma", "gunicorn", "uwsgi", "granian-wsgi", "granian-asgi",
         "constant", "nginx", "hyper", "may_minihttp"]


class Hello(servers.Server):
    """A server of bench/peers/hello. Whatever the path, the answer is the same."""

    def _lay_out_scripts(self):
        shutil.copytree(os.path.join(paths.PEERS, "hello"), self.root)

    def config(self, name, **more):
        path = os.path.join(self.folder, name)
        servers.fill(name, path, {"ROOT": self.root, "PORT": self.port, "PROCESSES": PROCESSES, "THREADS": THREADS, **more})
        return path


class Puma(Hello):
    name = "puma"
    arrangement = f"{PROCESSES} processes of {THREADS} threads"

    def commands(self):
        return [([paths.PUMA, "--config", self.config("puma.rb")], {})]


class Gunicorn(Hello):
    name = "gunicorn"
    arrangement = f"{PROCESSES} processes of {THREADS} threads"

    def commands(self):
        return [([paths.GUNICORN, "--config", self.config("gunicorn.conf.py")], {})]


class Uwsgi(Hello):
    name = "uwsgi"
    arrangement = f"{targets.THREADS} processes; a connection for each request"

    def commands(self):
        return [([paths.UWSGI, "--ini", self.config("uwsgi.ini", PROCESSES=targets.THREADS)], {})]


class GranianWsgi(Hello):
    """`program`: where it was installed."""

    name = "granian, WSGI"
    arrangement = f"{PROCESSES} processes of {THREADS} threads"
    interface, application, threads = "wsgi", "hello_wsgi:application", THREADS

    def __init__(self, program):
        super().__init__()
        self.program = program

    def commands(self):
        with open(self.config("granian.env", INTERFACE=self.interface, THREADS=self.threads)) as file:
            lines = [line.strip() for line in file if line[:1] not in "#\n"]
        return [([self.program, self.application], dict(line.split("=", 1) for line in lines))]


class GranianAsgi(GranianWsgi):
    name = "granian, ASGI"
    arrangement = f"{PROCESSES} processes of 1 event loop"
    interface, application, threads = "asgi", "hello_asgi:application", 1

