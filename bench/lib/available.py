"""Which servers can be started here, and how. What is missing is named with its remedy."""

import functools

from lib import builds, paths, peers, servers, targets

NO_BATON = "no target/release/baton; run make build"
NO_CONSTANT = "no target/release/examples/constant; run make bench"
NO_PHP_FPM = "apt-get install nginx-light php8.2-fpm"


def servers_here(chosen, problems):
    """name -> how to make that server. What has to be built for what is wanted is built now, before anything is measured."""
    makers = {}

    def offer(name, ready, make, remedy):
        if ready:
            makers[name] = make
        else:
            problems.append(f"{name} is left out: {remedy}")

    def offer_built(build, made):
        """`made`: of the program's path, the makers that it gives."""
        try:
            makers.update(made(build()))
        except builds.BuildError as error:
            problems.append(str(error))

    offer("baton", paths.BATON, servers.Baton, NO_BATON)
    offer("baton-by-load", paths.BATON, functools.partial(servers.BatonByLoad, None), NO_BATON)
    offer("baton-worker", paths.BATON, servers.BatonWorker, NO_BATON)
    # Not in Debian: no remedy but the variable, and php-fpm stands in for it.
    if paths.FRANKENPHP:
        makers["frankenphp"] = servers.FrankenPhpWorker
    offer("php-fpm", paths.NGINX and paths.PHP_FPM, servers.PhpFpm, NO_PHP_FPM)
    offer("php-fpm-few", paths.NGINX and paths.PHP_FPM, functools.partial(servers.PhpFpmFew, servers.FEW), NO_PHP_FPM)
    offer("php-fpm-as-shipped", paths.NGINX and paths.PHP_FPM, servers.PhpFpmAsShipped, NO_PHP_FPM)
    offer("nginx", paths.NGINX, servers.Nginx, "apt-get install nginx-light")
    for name, more in targets.VARIANTS.items():
        first = next(one.path for one in targets.SWITCHES if name in (one.subject, one.peer))
        offer(name, paths.CONSTANT, lambda name=name, more=more, first=first: servers.Bare(name, paths.CONSTANT, 1, more, first), NO_CONSTANT)
    threads = chosen.front_threads
    if chosen.wanted("constant") or chosen.wanted("peers"):
        offer("constant", paths.CONSTANT, lambda: servers.Bare("constant", paths.CONSTANT, threads), NO_CONSTANT)
        offer_built(lambda: builds.rust("hyper"), lambda program: {"hyper": lambda: servers.Bare("hyper", program, threads)})
    if chosen.wanted("peers"):
        offer("puma", paths.PUMA, peers.Puma, "apt-get install puma")
        offer("gunicorn", paths.GUNICORN, peers.Gunicorn, "apt-get install gunicorn")
        offer("uwsgi", paths.UWSGI, peers.Uwsgi, "apt-get install uwsgi-core uwsgi-plugin-python3")
        offer_built(builds.granian, lambda program: {"granian-wsgi": lambda: peers.GranianWsgi(program),
                                                     "granian-asgi": lambda: peers.GranianAsgi(program)})
        offer_built(lambda: builds.rust("may_minihttp"),
                    lambda program: {"may_minihttp": lambda: servers.Bare("may_minihttp", program, threads)})
    return makers
