/*
 * filter.c - ext/filter's copy of $_SERVER, made when it is asked for.
 *
 * ext/filter keeps raw copies of all input for filter_input(). For $_SERVER, which every application reads, that would double the
 * cost of a small request (measured: 13 us instead of 7.6), so it gets them at the first call that wants them. PHP itself feeds it $_GET and the like.
 */
#include "baton_php.h"

#include "php_ini.h"
#include "php_variables.h"

static zif_handler php_filter_input, php_filter_input_array, php_filter_has_var;
static bool has_server;

void baton_php_put_filtered(zval *server, zend_string *name, baton_str value)
{
    char *text = estrndup(value.ptr, value.len);
    size_t len = value.len;

    /* ext/filter registers the variable by itself; only a PHP without it leaves that to us. */
    if (sapi_module.input_filter(PARSE_SERVER, ZSTR_VAL(name), &text, value.len, &len)) {
        baton_php_put(server, name, (baton_str){text, len});
    }
    efree(text);
}

/* At the making of $_SERVER. True where values must go through a filter on their way (filter.default). */
bool baton_php_filter_begin(void)
{
    const char *filter = INI_STR("filter.default");

    has_server = filter && strcmp(filter, "unsafe_raw") != 0;
    return has_server;
}

void baton_php_feed_filter(void)
{
    zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
    if (!has_server && baton_php.request && Z_TYPE(PG(http_globals)[TRACK_VARS_SERVER]) == IS_ARRAY) {
        has_server = true;
        baton_php_each_variable(&PG(http_globals)[TRACK_VARS_SERVER], baton_php_put_filtered);
    }
}

static ZEND_NAMED_FUNCTION(fed_filter_input)
{
    baton_php_feed_filter();
    php_filter_input(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(fed_filter_input_array)
{
    baton_php_feed_filter();
    php_filter_input_array(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(fed_filter_has_var)
{
    baton_php_feed_filter();
    php_filter_has_var(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void baton_php_hook_filter(void)
{
    baton_php_hook("filter_input", fed_filter_input, &php_filter_input);
    baton_php_hook("filter_input_array", fed_filter_input_array, &php_filter_input_array);
    baton_php_hook("filter_has_var", fed_filter_has_var, &php_filter_has_var);
}
