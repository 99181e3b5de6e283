/*
 * baton_php.h - what the files of the PHP guest share.
 *
 *   lifecycle.c  starts PHP in the zygote, runs the request loop in app processes
 *   worker.c     the other loop: a script that boots once and handles requests by itself
 *   turn.c       one request in a worker
 *   clocks.c     how long a worker's boot and each of its requests may take
 *   settings.c   ini values from the front, .user.ini files
 *   request.c    fills PHP's request_info, keeps the folder right, runs the script, ends reply and request
 *   sapi.c       the module table: output, headers, body, log
 *   variables.c  $_SERVER, getenv(), getallheaders()
 *   filter.c     ext/filter's copy of $_SERVER
 *   functions.c  functions that scripts may call
 *   opcache.c    an opcache_reset() that does not pull the memory from under others; restarts of worker apps
 *   timeouts.c   signals: PHP's timers, the front's deadline
 *
 * PHP here is not thread-safe: one request at a time, one thread, hence one global state.
 */
#ifndef BATON_PHP_H
#define BATON_PHP_H

#include <stdbool.h>

#include "php.h"
#include "SAPI.h"
#include "php_globals.h"
#include "php_main.h"

#include "baton_guest.h"

typedef struct baton_php_state {
    baton_request *request; /* NULL when idle, and once the thread is through with it */
    bool reply_started;     /* status and headers were handed over */
    bool finished;          /* the script goes on, but its client has had its answer */
    bool disowned;          /* this is the child of a script's own fork(): nobody reads its output */
    zval headers;           /* getallheaders(), once it was asked for */
} baton_php_state;

extern baton_php_state baton_php;
extern sapi_module_struct baton_php_sapi;
extern zend_module_entry baton_php_module;

/* lifecycle.c */
int baton_php_main(int argc, char **argv);

/* settings.c */
char *baton_php_ini_entries(void);
void baton_php_lock_admin_ini(void);
void baton_php_activate_user_ini(const char *script, size_t dir_len, baton_str document_root);

/* worker.c */
void baton_php_worker_prepare(void);
bool baton_php_is_worker(void);
baton_str baton_php_worker_script(void);
const char *baton_php_worker_name(void);
int baton_php_serve_worker(baton_thread *thread);
PHP_FUNCTION(baton_handle_request);

/* turn.c */
void baton_php_turn_begin(baton_request *request);
void baton_php_turn_end(void);

/* clocks.c */
void baton_php_clocks_prepare(void);
void baton_php_boot_clock_start(void);
void baton_php_boot_clock_stop(void);
bool baton_php_boot_clock_has_run_out(void);
void baton_php_request_clock_start(void);
void baton_php_request_clock_stop(void);

/* request.c */
void baton_php_hook_chdir(void);
void baton_php_thread_settings(bool keeps);
void baton_php_request_begin(baton_request *request);
void baton_php_request_begin_boot(void);
int baton_php_activate(void);
int baton_php_run_script(void);
void baton_php_request_detach(void);
int baton_php_deactivate(void);
void baton_php_request_clear(void);
void baton_php_request_end(void);
bool baton_php_thread_is_used_up(void);
void baton_php_free_thread(void);

/* sapi.c */
int baton_php_inform(uint16_t status);
const char *baton_php_last_log_line(void);
void baton_php_watch_fatal_errors(void);

/* functions.c */
void baton_php_forget_headers(void);
void baton_php_hook(const char *name, zif_handler handler, zif_handler *original);

/* variables.c */
void baton_php_intern_names(void);
void baton_php_hook_environment(void);
void baton_php_forget_answers(void);
void baton_php_register_variables(zval *server);
char *baton_php_getenv(const char *name, size_t name_len);
char *baton_php_read_cookies(void);
void baton_php_request_headers(zval *array);

typedef void (*baton_php_put_variable)(zval *server, zend_string *name, baton_str value);
void baton_php_put(zval *server, zend_string *name, baton_str value);
void baton_php_each_variable(zval *server, baton_php_put_variable put);

/* filter.c */
bool baton_php_filter_begin(void);
void baton_php_put_filtered(zval *server, zend_string *name, baton_str value);
void baton_php_feed_filter(void);
void baton_php_hook_filter(void);

/* opcache.c */
void baton_php_hook_opcache(void);
void baton_php_watch_opcache(int64_t now_ns);

/* timeouts.c */
void baton_php_signals_before_start(void);
void baton_php_signals_after_start(void);
void baton_php_timeouts_idle(bool timer_runs);

static inline baton_str baton_php_field(enum baton_field field)
{
    return baton_request_field(baton_php.request, field);
}

#endif
