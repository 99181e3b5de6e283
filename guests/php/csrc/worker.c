/*
 * worker.c - a script that boots once and then handles requests in a loop.
 *
 *   boot ──► handle_request(f): ┌─ the thread is free; wait ─► turn begins ─► f() ─► turn ends: the client has its reply ─┐
 *                               └──────────────── the script calls again, whenever it likes ◄──────────────────────────────┘
 *
 * The function and its meaning are FrankenPHP's, so that what was written for it runs here. A thread is not free before the script
 * calls again: what it does after a reply, and its new start when it has ended, keep no request waiting.
 *
 * A script that ends, by itself, by exit() or by a fatal error, is started again in this process: that is what regular mode does after
 * every request, so it is as safe, and costs no fork. Measured with an empty script on a busy machine: 0.1 ms, a new process 10 ms.
 * A script that ends before it asked for a request has failed to boot, and ends the process, so that the front backs off.
 */
#include "baton_php.h"

#include <stdio.h>
#include <stdlib.h>

#include "ext/spl/spl_exceptions.h"
#include "zend_exceptions.h"

/* A script that goes on asking after it was told to stop so often is made to. */
enum { REFUSALS_MAX = 1000 };

static struct worker {
    baton_thread *thread;
    baton_str script; /* absolute; NUL-terminated */
    const char *name; /* its URL path */
    uint32_t refusals;
    bool runs;        /* the script is being executed */
    bool booted;      /* it has asked for a request */
    bool leaving;     /* it was told to stop */
} worker;

bool baton_php_is_worker(void)
{
    return worker.script.len > 0;
}

const char *baton_php_worker_name(void)
{
    return worker.name;
}

baton_str baton_php_worker_script(void)
{
    return worker.script;
}

/* ---- the loop, as the script sees it ---------------------------------- */

/* The script has booted: what it wrote meanwhile goes to the log, and the request that it did not have ends. */
static void end_boot(void)
{
    worker.booted = true;
    baton_php_turn_end();
    baton_php_boot_clock_stop();
}

/* NULL: the script is to end. */
static baton_request *next_request(void)
{
    baton_request *request = NULL;

    if (!worker.leaving && !baton_php_thread_is_used_up()) {
        baton_php_request_clock_stop();
        baton_php_free_thread();
        request = baton_accept(worker.thread);
    }
    worker.leaving = request == NULL;
    if (worker.leaving && ++worker.refusals > REFUSALS_MAX) {
        zend_throw_unwind_exit();
    }
    return request;
}

static void call_handler(zend_fcall_info call, zend_fcall_info_cache *cache)
{
    zval result;

    ZVAL_UNDEF(&result);
    call.retval = &result;
    if (!EG(exception)) { /* of a session that starts by itself */
        zend_call_function(&call, cache);
        zval_ptr_dtor(&result);
    }
    /* exit() unwinds the script, and its reply is sent when that is done. */
    if (EG(exception) && !zend_is_unwind_exit(EG(exception)) && !zend_is_graceful_exit(EG(exception))) {
        zend_exception_error(EG(exception), E_ERROR); /* costs its own request only */
    }
}

PHP_FUNCTION(baton_handle_request)
{
    zend_fcall_info call;
    zend_fcall_info_cache cache;
    baton_request *request;

    ZEND_PARSE_PARAMETERS_START(1, 1)
        Z_PARAM_FUNC(call, cache)
    ZEND_PARSE_PARAMETERS_END();

    if (!worker.runs || baton_php.request) {
        zend_throw_exception_ex(spl_ce_RuntimeException, 0, "%s() is for worker scripts, %s", get_active_function_name(),
                                worker.runs ? "between two requests" : "and this is none");
        RETURN_THROWS();
    }
    if (!worker.booted) {
        end_boot();
    }
    request = next_request();
    if (!request) {
        RETURN_FALSE;
    }
    baton_php_watch_opcache(baton_request_received_ns(request));
    baton_php_request_clock_start();
    baton_php_turn_begin(request);
    call_handler(call, &cache);
    if (baton_php.disowned) {
        _exit(EG(exit_status)); /* the script's own child, which has come back from the handler */
    }
    if (EG(exception)) {
        RETURN_THROWS();
    }
    baton_php_turn_end();
    RETURN_TRUE;
}

/* ---- the script, from start to end ------------------------------------ */

static void run_script(void)
{
    worker.booted = false;
    baton_php_request_begin_boot();
    if (php_request_startup() == SUCCESS) {
        PG(ignore_user_abort) = 1; /* a client that leaves does not end the script, unless that wants it */
        baton_php_boot_clock_start();
        worker.runs = true;
        if (baton_php_run_script() == 404) {
            sapi_module.log_message("Baton: the worker's file is not there any more", LOG_ERR);
        }
        worker.runs = false;
    }
    php_request_shutdown(NULL);
    baton_php_request_clock_stop();
    baton_php_request_end();
    if (baton_php.disowned) {
        _exit(EG(exit_status)); /* the script's own child; its parent still uses what module shutdown would close */
    }
}

static void report_failed_boot(void)
{
    char message[MAXPATHLEN + 128];

    snprintf(message, sizeof(message), "Baton: the worker %s ended %sbefore it called frankenphp_handle_request()", worker.script.ptr,
             baton_php_boot_clock_has_run_out() ? "because it took too long to boot, " : "");
    sapi_module.log_message(message, LOG_ERR);
}

/* In the zygote. */
void baton_php_worker_prepare(void)
{
    const char *script = baton_setting("worker");
    const char *name = baton_setting("worker_name");

    if (script) {
        worker.script = (baton_str){script, strlen(script)};
        worker.name = name ? name : "";
    }
}

static bool is_to_end(void)
{
    return worker.leaving || baton_php_thread_is_used_up() || baton_thread_stopping(worker.thread);
}

/* The exit status of the process. */
int baton_php_serve_worker(baton_thread *thread)
{
    volatile int status = 0;

    worker.thread = thread;
    baton_php_clocks_prepare();
    setvbuf(stdout, NULL, _IOLBF, 0); /* what a script prints between two requests goes to the log */
    zend_first_try {
        do {
            run_script();
        } while (worker.booted && !is_to_end());
        if (!worker.booted && !is_to_end()) {
            report_failed_boot();
            status = 1;
        }
    } zend_catch {
        /* PHP gave up outside of what can be recovered: the front replaces this process. */
        status = 1;
    } zend_end_try();
    return status;
}
