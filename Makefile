# Baton: build, run, test, measure, install. Each target first installs the Debian packages that it lacks, and says which.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
TARGET  ?= target
ADDRESS ?= 127.0.0.1:8080
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
PACKAGE  = $(TARGET)/debian/baton_$(VERSION)-1_$(shell dpkg --print-architecture).deb
# How long `make fuzz` goes on; `make test` has its own, shorter time.
SECONDS_FUZZ      ?= 600
SECONDS_FUZZ_TEST := 60

# What the server needs to be built and to run: PHP's program for web servers, its headers, opcache, a C compiler.
PACKAGES_BUILD := gcc libc6-dev pkg-config php8.2-cgi php8.2-dev php8.2-opcache
# Three applications and a framework for their journeys, with the PHP extensions and the database that they use. Of MariaDB only
# the programs are installed. nginx and HAProxy stand in front; nginx is also the web server that `mediawiki` and `wordpress` ask for. systemd
# checks the units and passes sockets. The fuzzer links C++.
PACKAGES_TEST  := g++ python3 php8.2-cli php8.2-xml php8.2-gd php8.2-mbstring php8.2-intl php8.2-sqlite3 php8.2-mysql \
                  php8.2-apcu dokuwiki mediawiki wordpress wordpress-theme-twentytwentythree \
                  mariadb-server-core mariadb-client nginx-light haproxy systemd \
                  php-symfony-framework-bundle
# dpkg-shlibdeps and strip.
PACKAGES_DEB   := dpkg-dev binutils
# The peers and tools of the benchmarks.
PACKAGES_BENCH := nginx-light php8.2-fpm php8.2-opcache wrk nghttp2-client strace valgrind apache2-utils \
                  php8.2-cli php8.2-mbstring php8.2-xml php8.2-intl php8.2-sqlite3 php8.2-mysql php8.2-apcu mediawiki wordpress \
                  mariadb-server-core mariadb-client puma gunicorn uwsgi-core uwsgi-plugin-python3 python3-venv

.PHONY: build run test test-unit test-loom test-journeys test-fuzz test-deb bench bench-tester fmt lint fuzz docs install uninstall deb \
        deps-build deps-test deps-deb deps-bench clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 20

build: deps-build ## the release binaries, target/release/baton and target/release/baton-php
	$(CARGO) build --release -p baton
	$(CARGO) build --release -p baton-php

run: build ## serve the example application on http://127.0.0.1:8080
	$(TARGET)/release/baton serve examples/php --listen $(ADDRESS)

test: deps-build deps-test ## everything that must hold: lint, unit tests, loom, journeys, the package, a minute of fuzzing
	$(MAKE) lint
	$(MAKE) test-unit
	$(MAKE) test-loom
	$(MAKE) test-journeys
	$(MAKE) test-deb
	$(MAKE) test-fuzz

test-unit: ## tests that need neither PHP nor a socket to the outside
	$(CARGO) test
	python3 bench/test_harness.py

test-loom: ## the lock-free parts under every interleaving, and mutants of them that must fail
	crates/handoff/mutants.sh

test-journeys: build ## the real binary over real sockets
	$(CARGO) test -p baton-journeys --release

test-deb: deb deps-test ## install the Debian package, get a page from it, purge it
	@if [ "$$(id -u)" = 0 ]; then tests/package $(PACKAGE); else sudo tests/package $(PACKAGE); fi

test-fuzz:
	crates/http1/fuzz/run.sh $(SECONDS_FUZZ_TEST)

fuzz: deps-build deps-test ## fuzz the HTTP parser; SECONDS_FUZZ=600
	crates/http1/fuzz/run.sh $(SECONDS_FUZZ)

bench: build deps-bench ## side by side with the peers, writes bench/RESULTS.md; QUICK=1: does it work at all?
	$(CARGO) build --release -p baton-server --example constant
	$(CARGO) build --release -p baton-bench-handoff
	bench/run $(if $(filter-out 0,$(QUICK)),--quick)

bench-tester: build deps-bench ## the load tester beside wrk and h2load: does it count right, is it fast?
	bench/tester

fmt: ## format the sources
	$(CARGO) fmt --all

lint: deps-build ## formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs: ## write the tables of docs/configuration.md from the options' definitions
	BATON_WRITE_DOCS=1 $(CARGO) test --quiet -p baton reference

# The server finds its guest in ../lib/baton from where it stands.
install: build ## PREFIX=/usr/local, DESTDIR= for packagers
	install -Dm755 $(TARGET)/release/baton $(DESTDIR)$(PREFIX)/bin/baton
	install -Dm755 $(TARGET)/release/baton-php $(DESTDIR)$(PREFIX)/lib/baton/baton-php
	install -Dm644 $(TARGET)/release/libbaton_php.so $(DESTDIR)$(PREFIX)/lib/baton/libbaton_php.so
	install -Dm644 crates/guest/include/baton_guest.h $(DESTDIR)$(PREFIX)/include/baton_guest.h
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/doc/baton README.md ARCHITECTURE.md CHANGELOG.md LICENSE $(wildcard docs/*)
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system share/systemd/baton.service share/systemd/baton.socket
	sed -i 's|/usr/bin/baton|$(PREFIX)/bin/baton|; s|/usr/share|$(PREFIX)/share|' \
	    $(DESTDIR)$(PREFIX)/lib/systemd/system/baton.service $(DESTDIR)$(PREFIX)/lib/systemd/system/baton.socket

uninstall: ## removes what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/baton $(DESTDIR)$(PREFIX)/include/baton_guest.h
	rm -rf $(DESTDIR)$(PREFIX)/lib/baton $(DESTDIR)$(PREFIX)/share/doc/baton
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/baton.service $(DESTDIR)$(PREFIX)/lib/systemd/system/baton.socket

deb: build deps-deb ## a Debian package, target/debian/baton_VERSION-1_ARCHITECTURE.deb
	share/debian/build $(VERSION) $(TARGET)/debian

clean:
	$(CARGO) clean

deps-build:
	@$(call install_missing,build,$(PACKAGES_BUILD))

deps-test:
	@$(call install_missing,test,$(PACKAGES_TEST))

deps-deb:
	@$(call install_missing,deb,$(PACKAGES_DEB))

deps-bench:
	@$(call install_missing,bench,$(PACKAGES_BENCH))

# $(call install_missing,PURPOSE,PACKAGES): asks dpkg, and apt-get only for what is missing. While packages are installed
# no service may start: unless the machine has a policy of its own, one that says so is put in place and taken away again.
define install_missing
missing=$$(for p in $(2); do \
    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$p 2>/dev/null || true)" = installed ] || echo $$p; done); \
[ -z "$$missing" ] && exit 0; \
command -v apt-get >/dev/null || { echo "make $(1) needs these Debian packages: $$missing" >&2; exit 1; }; \
echo "installing the Debian packages needed for $(1):" $$missing; \
sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
policy=/usr/sbin/policy-rc.d; \
if [ ! -e $$policy ]; then \
    printf '#!/bin/sh\nexit 101\n' | $$sudo tee $$policy >/dev/null; $$sudo chmod 755 $$policy; \
    trap "$$sudo rm -f $$policy" EXIT; \
fi; \
install="$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends"; \
$$install $$missing || { $$sudo apt-get update -qq && $$install $$missing; }
endef
