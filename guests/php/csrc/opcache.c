/*
 * opcache.c - opcache_reset() without opcache's restart.
 *
 * opcache restarts by wiping the memory that it shares between all processes, once none of them holds its read lock. But a
 * process takes that lock only some time after it began to look at the memory (PHP 8.2: accel_activate, then
 * persistent_zend_resolve_path, and only then accel_activate_add). With four processes under load, every few thousand resets cost
 * one of them its heap. So here opcache_reset() invalidates every script instead: what runs keeps what it has, and the next
 * request compiles afresh. The old copies count as wasted memory.
 *
 * A worker has loaded its code for good, so there a reset asks the front for a restart of the app, from new zygotes with memory of their
 * own: of all its workers, and of its other scripts, since each of these has an opcache of its own. So does a reset by a script beside
 * workers, as a hook of a deployment may be one. A restart, of this worker only, is also asked for where opcache itself wants to restart
 * because its memory is full: it would wait for workers, which never give the lock back, serve nobody meanwhile, and after
 * opcache.force_restart_timeout kill them.
 */
#include "baton_php.h"

#define NS_PER_S INT64_C(1000000000)
#define WATCH_NS NS_PER_S
/* If the restart that was asked for has not replaced this process by then, it failed. */
#define ASK_AGAIN_NS (30 * NS_PER_S)

static zend_function *get_status;
static zend_function *invalidate;
static zif_handler php_opcache_reset;

static bool ask_for_restart(void)
{
    return baton_request_restart("opcache_reset() was called", 1) == 0;
}

static void call(zend_function *function, zval *result, uint32_t count, zval *arguments)
{
    ZVAL_UNDEF(result);
    zend_call_known_function(function, NULL, NULL, result, count, arguments, NULL);
}

static void invalidate_all(HashTable *scripts)
{
    zval *script;

    ZEND_HASH_FOREACH_VAL(scripts, script) {
        zval *path = Z_TYPE_P(script) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL_P(script), "full_path", sizeof("full_path") - 1) : NULL;
        zval arguments[2], result;

        if (path && Z_TYPE_P(path) == IS_STRING) {
            ZVAL_COPY_VALUE(&arguments[0], path);
            ZVAL_TRUE(&arguments[1]);
            call(invalidate, &result, 2, arguments);
            zval_ptr_dtor(&result);
        }
    } ZEND_HASH_FOREACH_END();
}

static ZEND_NAMED_FUNCTION(reset_by_invalidation)
{
    zval status, with_scripts, *enabled, *scripts;

    ZEND_PARSE_PARAMETERS_NONE();

    RETVAL_FALSE;
    ZVAL_TRUE(&with_scripts);
    call(get_status, &status, 1, &with_scripts); /* false, with a warning, where opcache.restrict_api forbids it */
    if (Z_TYPE(status) == IS_ARRAY) {
        enabled = zend_hash_str_find(Z_ARRVAL(status), "opcache_enabled", sizeof("opcache_enabled") - 1);
        scripts = zend_hash_str_find(Z_ARRVAL(status), "scripts", sizeof("scripts") - 1);
        if (scripts && Z_TYPE_P(scripts) == IS_ARRAY) {
            invalidate_all(Z_ARRVAL_P(scripts));
        }
        RETVAL_BOOL(enabled && Z_TYPE_P(enabled) == IS_TRUE);
    }
    zval_ptr_dtor(&status);
    if (Z_TYPE_P(return_value) == IS_TRUE && baton_setting("beside_workers")) {
        RETVAL_BOOL(ask_for_restart());
    }
}

/* Where one of the two functions is disabled, so is the reset: better than the wipe. */
static ZEND_NAMED_FUNCTION(refuse_reset)
{
    ZEND_PARSE_PARAMETERS_NONE();

    php_error_docref(NULL, E_WARNING, "opcache_get_status and opcache_invalidate are disabled, and this server resets with them");
    RETURN_FALSE;
}

static zend_function *find(const char *name)
{
    return zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
}

/* ---- workers ---------------------------------------------------------- */

static ZEND_NAMED_FUNCTION(reset_by_restart)
{
    ZEND_PARSE_PARAMETERS_NONE();

    if (ask_for_restart()) {
        RETURN_TRUE;
    }
    if (errno == EBUSY) {
        php_error_docref(NULL, E_WARNING, "A worker that boots cannot ask for a restart");
    }
    RETURN_FALSE;
}

static bool wants_restart(void)
{
    zval status, with_scripts, *pending;
    bool wants;

    /* opcache.restrict_api is about who asks: here it is the server. */
    const char *script = SG(request_info).path_translated;
    const char *allowed = INI_STR("opcache.restrict_api");

    if (allowed && *allowed) {
        SG(request_info).path_translated = (char *)allowed;
    }
    ZVAL_FALSE(&with_scripts);
    call(get_status, &status, 1, &with_scripts);
    SG(request_info).path_translated = (char *)script;
    pending = Z_TYPE(status) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL(status), "restart_pending", sizeof("restart_pending") - 1) : NULL;
    wants = pending && Z_TYPE_P(pending) == IS_TRUE;
    zval_ptr_dtor(&status);
    return wants;
}

/* Between two requests, and once a second at most. */
void baton_php_watch_opcache(int64_t now_ns)
{
    static int64_t watched_ns, pause_ns;

    if (!get_status || (now_ns >= watched_ns && now_ns - watched_ns < pause_ns)) {
        return;
    }
    watched_ns = now_ns;
    pause_ns = wants_restart() && baton_request_restart("opcache's memory is full", 0) == 0 ? ASK_AGAIN_NS : WATCH_NS;
}

void baton_php_hook_opcache(void)
{
    zif_handler reset = refuse_reset;

    get_status = find("opcache_get_status");
    invalidate = find("opcache_invalidate");
    if (baton_php_is_worker()) {
        reset = reset_by_restart;
    } else if (get_status && invalidate) {
        reset = reset_by_invalidation;
    }
    baton_php_hook("opcache_reset", reset, &php_opcache_reset);
}
