/*
 * baton_guest.h - the application process's side of Baton, for any language.
 *
 * A guest program is started by the front as an app's zygote. It loads the
 * interpreter and whatever the app preloads, then calls baton_zygote_serve(),
 * which returns once in every app process forked from it. There each thread
 * attaches to its number and loops: accept, read the request, reply, finish.
 *
 *     if (baton_zygote_serve() != 0) return 1;
 *     baton_thread *t = baton_thread_attach(0);
 *     baton_request *r;
 *     while ((r = baton_accept(t)) != NULL) {
 *         baton_reply_start(r, 200, headers, 1);
 *         baton_reply_write(r, "hello", 5);
 *         baton_reply_finish(r);
 *     }
 *
 * Strings handed out by this interface point into memory that is mapped
 * read-only and stay valid until baton_reply_finish() or
 * baton_reply_abandon() of their request. They are not NUL-terminated,
 * except where said so.
 *
 * Threads: a baton_thread and its requests belong to the operating-system
 * thread that attached it. Nothing here takes a lock that is held while
 * another thread sleeps. No function throws, aborts or changes signal masks.
 */
#ifndef BATON_GUEST_H
#define BATON_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_str {
    const char *ptr; /* never NULL; points at a NUL byte when len is 0 */
    size_t len;      /* bytes */
} baton_str;

typedef struct baton_header {
    baton_str name;
    baton_str value;
} baton_header;

typedef struct baton_thread baton_thread;
typedef struct baton_request baton_request;

/* ---- the zygote ------------------------------------------------------- */

/* A setting given by the front when the zygote was started, NUL-terminated, or NULL.
 * "root", "index", "threads_per_process", "worker", "worker_name", "max_requests", "sapi_name", "ini_file", "ini" (lines `name=value`), "user" ...
 * Valid for the life of the process. */
const char *baton_setting(const char *name);

/* Tell the front that the app cannot start, in one line for the log and the admin API. The zygote should exit(1) afterwards. */
void baton_zygote_failed(const char *reason);

/* Drop root for the account that the front named, if it named one; then make the process dumpable again, so that it can
 * be traced and its shared memory reopened. To be called before the interpreter starts. 0, or -1 with errno. */
int baton_zygote_drop_privileges(void);

/* Report readiness, then fork an app process for each command of the front.
 * Returns 0 in every app process, once the front is its parent; returns -1 in the zygote
 * when the front has gone or said stop: the zygote should then exit(0). */
int baton_zygote_serve(void);

/* ---- the app process -------------------------------------------------- */

/* How many threads this process is to run: the setting "threads_per_process". A guest that has no threads fails in the zygote unless
 * that is 1. When the process leaves, its threads are told to stop together. */
uint32_t baton_thread_count(void);

/* Take thread number `index` (0 .. count-1) for the calling operating-system thread. Once per index. NULL if out of range or taken. */
baton_thread *baton_thread_attach(uint32_t index);

/* The next request of this thread; sleeps until there is one. NULL: stop, leave the loop and exit.
 * Where the setting "worker" is not empty, the process boots first: it is offered nothing before all its threads accept for the first
 * time, and if it ends before that, its start has failed. */
baton_request *baton_accept(baton_thread *thread);

/* 1 when the front has told this thread to stop; what was offered before is still to be accepted. Costs one load. */
int baton_thread_stopping(baton_thread *thread);

/* For an event loop: the next request if there is one now, else NULL and *stopped tells whether to leave the loop.
 * After it has returned NULL, and baton_thread_arm() has returned 1, the descriptor becomes readable when there is work;
 * after waking, call baton_thread_disarm() and accept until NULL. */
baton_request *baton_try_accept(baton_thread *thread, int *stopped);
int baton_thread_fd(baton_thread *thread);
int baton_thread_arm(baton_thread *thread); /* 1: armed, may wait; 0: work is there, do not wait */
void baton_thread_disarm(baton_thread *thread);

/* Ask the front to load the app anew: a new zygote, then all its processes one after the other. An app with workers has a zygote and
 * processes for each of them, and for its other scripts: only those of this process's kind are loaded anew, unless `whole_app` is 1.
 * `reason` goes to the log, 200 bytes of it at most. The front takes its time, and takes the wishes of several processes for one; of each process it hears the first.
 * 0, or -1 with errno: EBUSY (the process boots), ENOTCONN (not an app process, or disowned), EAGAIN (try again later). */
int baton_request_restart(const char *reason, int whole_app);

/* In the child of an application's own fork(): never touch the slots of the parent again. Safe to call from a pthread_atfork child handler. */
void baton_disown(void);

/* ---- the request ------------------------------------------------------ */

enum baton_field {
    BATON_METHOD = 0,
    BATON_TARGET,       /* request target as sent, without fragment: "/a%20b?c=d" (REQUEST_URI) */
    BATON_PATH,         /* path of the target, percent-decoded and normalised, without dot segments */
    BATON_QUERY,        /* query string without '?', empty if none */
    BATON_PROTOCOL,     /* "HTTP/1.1" or "HTTP/1.0" */
    BATON_SCHEME,       /* "http" or "https" */
    BATON_HOST,         /* validated host, without port; IPv6 in brackets; listener's own address if none was sent */
    BATON_SERVER_ADDR,
    BATON_SERVER_PORT,
    BATON_REMOTE_ADDR,
    BATON_REMOTE_PORT,
    BATON_DOCUMENT_ROOT,/* absolute */
    BATON_SCRIPT_NAME,  /* "/index.php": URL path of the script */
    BATON_SCRIPT_FILENAME, /* absolute path of the script: "/srv/site/index.php" */
    BATON_PATH_INFO,    /* "/blah" in /index.php/blah, decoded; empty if none */
    BATON_REQUEST_ID,   /* 16 hex digits, as in the logs */
    BATON_FIELDS
};

/* NUL-terminated as well (the NUL is not counted). */
baton_str baton_request_field(const baton_request *request, enum baton_field field);

/* Wall clock of the request's arrival, nanoseconds since 1970. */
int64_t baton_request_received_ns(const baton_request *request);

/* Headers in the order of arrival; names as sent; values trimmed; repeated headers come one by one. Names with '_' were dropped by the front.
 * Name and value are NUL-terminated as well. 1, or 0 past the last one. */
int baton_request_header(const baton_request *request, uint32_t index, baton_header *header);
uint32_t baton_request_header_count(const baton_request *request);
/* First header of that name, any case. 1 or 0. */
int baton_request_find_header(const baton_request *request, const char *name, baton_str *value);

/* Length of the whole body in bytes. It has fully arrived before the request was handed over, so reading never waits for the client. */
uint64_t baton_body_length(const baton_request *request);
/* Copies up to `len` bytes on from the last read. 0 at the end, -1 with errno if a spooled body cannot be read. */
ssize_t baton_body_read(baton_request *request, void *buffer, size_t len);
/* Reads at an offset, without moving on (for rewindable inputs). */
ssize_t baton_body_read_at(baton_request *request, void *buffer, size_t len, uint64_t offset);

/* 1 when the client has left and nobody will read the reply. Costs one load. */
int baton_client_gone(const baton_request *request);

/* ---- the reply -------------------------------------------------------- */

/* An informational reply (100..199, but not 101), before baton_reply_start(). 0, or -1: EINVAL bad status or too late, EPIPE client gone. */
int baton_reply_inform(baton_request *request, uint16_t status, const baton_header *headers, uint32_t count);

/* Status and headers. Once. 0, or -1 with errno: EINVAL (status not 200..999, called twice), EMSGSIZE (headers over 64 KiB), EPIPE (client gone). */
int baton_reply_start(baton_request *request, uint16_t status, const baton_header *headers, uint32_t count);

/* Body bytes: copied to shared memory at once; sleeps only when the client is so slow that 256 KiB wait. Given on to the client at a
 * flush, at the end, and when 256 KiB (later 128 KiB) have gathered. 0, or -1 with EPIPE when nobody will read it (the rest is then swallowed). */
int baton_reply_write(baton_request *request, const void *bytes, size_t len);
/* For event loops: takes what fits and returns its count, 0 if full (the descriptor tells when there is room again), -1 EPIPE. */
ssize_t baton_reply_try_write(baton_request *request, const void *bytes, size_t len);
/* Send what there is. 0 or -1 EPIPE. */
int baton_reply_flush(baton_request *request);

/* The reply is complete and goes to the client, but this thread goes on with the request and gets no other
 * before baton_reply_finish(), which must follow. The request can still be read; what is written is dropped. */
void baton_reply_complete(baton_request *request);
/* The reply is complete; `request` is no longer valid. The next request may be handed over at once. */
void baton_reply_finish(baton_request *request);
/* Give up: 500 if nothing was started, else the connection is cut. `request` is no longer valid. */
void baton_reply_abandon(baton_request *request);

#ifdef __cplusplus
}
#endif
#endif
