/*
 * opcache.c - opcache_reset() without opcache's restart.
 *
 * opcache restarts by wiping the memory that it shares between all processes, once none of them holds its read lock. But a
 * process takes that lock only some time after it began to look at the memory (PHP 8.2: accel_activate, then
 * persistent_zend_resolve_path, and only then accel_activate_add). With four processes under load, every few thousand resets cost
 * one of them its heap. So here opcache_reset() invalidates every script instead: what runs keeps what it has, and the next
 * request compiles afresh. The old copies count as wasted memory.
 */
#include "baton_php.h"

static zend_function *get_status;
static zend_function *invalidate;
static zif_handler php_opcache_reset;

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

void baton_php_hook_opcache(void)
{
    get_status = find("opcache_get_status");
    invalidate = find("opcache_invalidate");
    baton_php_hook("opcache_reset", get_status && invalidate ? reset_by_invalidation : refuse_reset, &php_opcache_reset);
}
