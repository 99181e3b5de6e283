/*
 * lifecycle.c - the zygote starts PHP once; each process forked from it runs requests until it is told to stop.
 */
#include "baton_php.h"

#include <linux/close_range.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "zend_extensions.h"
#include "zend_signal.h"

/* ---- the zygote ------------------------------------------------------- */

static bool starting = true;

/* PHP ends the process by itself on some errors at start; the front should know why all the same. */
static void report_early_exit(void)
{
    char reason[640];

    if (starting) {
        starting = false;
        snprintf(reason, sizeof(reason), "PHP does not start: %s",
                 *baton_php_last_log_line() ? baton_php_last_log_line() : "see what it wrote to the log");
        baton_zygote_failed(reason);
    }
}

ZEND_ATTRIBUTE_FORMAT(printf, 1, 2) static int fail(const char *format, ...)
{
    char reason[640];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    starting = false;
    baton_zygote_failed(reason);
    return 1;
}

/* Everything that is the same for all requests, before the first fork. 0, or 1 after telling the front why not. */
static int start_php(void)
{
    const char *sapi_name = baton_setting("sapi_name");
    const char *ini_file = baton_setting("ini_file");

    baton_php_signals_before_start();
    zend_signal_startup();
    sapi_startup(&baton_php_sapi);
    SG(options) |= SAPI_OPTION_NO_CHDIR;
    if (sapi_name && *sapi_name) {
        baton_php_sapi.name = (char *)sapi_name;
    }
    if (ini_file && *ini_file) {
        if (access(ini_file, R_OK) != 0) {
            return fail("cannot read the php.ini file %s: %s", ini_file, strerror(errno));
        }
        baton_php_sapi.php_ini_path_override = (char *)ini_file;
    }
    baton_php_sapi.ini_entries = baton_php_ini_entries();

    if (baton_php_sapi.startup(&baton_php_sapi) == FAILURE) {
        report_early_exit();
        return 1;
    }
    if (!zend_get_extension("Zend OPcache")) {
        return fail("PHP's opcache is not loaded. Remedy: apt-get install php%d.%d-opcache", PHP_MAJOR_VERSION, PHP_MINOR_VERSION);
    }
    baton_php_signals_after_start();
    baton_php_lock_admin_ini();
    baton_php_hook_chdir();
    baton_php_hook_environment();
    baton_php_hook_filter();
    baton_php_hook_opcache();
    baton_php_watch_fatal_errors();
    starting = false;
    return 0;
}

/* ---- the app process -------------------------------------------------- */

static void forked_by_script(void)
{
    baton_php.disowned = true;
    baton_disown();
}

static void refuse(int status)
{
    zend_try {
        SG(sapi_headers).http_response_code = status;
        if (status == 403) {
            PHPWRITE("Access denied.\n", sizeof("Access denied.\n") - 1);
        } else {
            PHPWRITE("File not found.\n", sizeof("File not found.\n") - 1);
        }
    } zend_end_try();
}

static void serve_request(baton_request *request)
{
    int status;

    baton_php_request_begin(request);
    if (php_request_startup() == SUCCESS) {
        status = baton_php_run_script();
        if (status != 200) {
            refuse(status);
        }
    } else {
        SG(sapi_headers).http_response_code = 500; /* such as a form that needs more than memory_limit */
    }
    php_request_shutdown(NULL);
    baton_php_request_end();
    if (baton_php.disowned) {
        _exit(EG(exit_status)); /* the script's own child; its parent still uses what module shutdown would close */
    }
}

/* A script afresh for each request. */
static int serve_regular(baton_thread *thread)
{
    volatile int status = 0;
    baton_request *request;

    zend_first_try {
        while (!baton_php_thread_is_used_up() && (request = baton_accept(thread)) != NULL) {
            serve_request(request);
        }
    } zend_catch {
        /* PHP gave up outside of what can be recovered: the front replaces this process. */
        status = 1;
    } zend_end_try();
    return status;
}

/* Programs that scripts start should not get the guest, only what was on the list besides. */
static void leave_preload_list(void)
{
    const char *list = getenv("LD_PRELOAD");
    const char *others = list ? strchr(list, ':') : NULL;

    if (others) {
        setenv("LD_PRELOAD", others + 1, 1);
    } else {
        unsetenv("LD_PRELOAD");
    }
}

int baton_php_main(int argc, char **argv)
{
    baton_thread *thread;
    int status;

    (void)argc, (void)argv;
    leave_preload_list();
    prctl(PR_SET_NAME, "baton-php");
    if (baton_zygote_drop_privileges() != 0) {
        return fail("cannot change to the app's user: %s", strerror(errno));
    }
    if (access(baton_setting("root"), R_OK | X_OK) != 0) {
        return fail("the application's user cannot read %s: check its permissions and those of the folders above it",
                    baton_setting("root"));
    }
    if (strcmp(baton_setting("threads_per_process"), "1") != 0) {
        return fail("threads_per_process is %s, but a process of this PHP has 1 thread: leave that out, and set num_threads and max_threads",
                    baton_setting("threads_per_process"));
    }
    atexit(report_early_exit);
    baton_php_worker_prepare();
    baton_php_thread_settings(baton_php_is_worker());
    if (start_php() != 0) {
        return 1;
    }
    /* opcache's lock file comes without it, and so may what extensions opened: programs that scripts start inherit none. */
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (baton_zygote_serve() != 0) {
        _exit(0); /* the front has gone or is done with us */
    }

    pthread_atfork(NULL, NULL, forked_by_script);
    thread = baton_thread_attach(0);
    if (!thread) {
        return 1;
    }
    status = baton_php_is_worker() ? baton_php_serve_worker(thread) : serve_regular(thread);
    SG(server_context) = NULL;
    php_module_shutdown();
    sapi_shutdown();
    return status;
}
