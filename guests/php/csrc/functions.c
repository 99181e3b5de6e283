/*
 * functions.c - the functions that this server adds to PHP, and its entry in phpinfo().
 */
#include "baton_php.h"

#include "ext/standard/head.h"
#include "ext/standard/info.h"
#include "php_output.h"

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
    ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
    ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

/* Completes the reply; the script goes on. False where there is no reply any more. */
static PHP_FUNCTION(fastcgi_finish_request)
{
    ZEND_PARSE_PARAMETERS_NONE();

    if (!baton_php.request || baton_php.finished || baton_php.disowned) {
        RETURN_FALSE;
    }
    php_output_end_all();
    php_header();
    baton_php_request_detach();
    php_output_set_status(PHP_OUTPUT_DISABLED);
    RETURN_TRUE;
}

/* getallheaders(), apache_request_headers() */
static PHP_FUNCTION(getallheaders)
{
    ZEND_PARSE_PARAMETERS_NONE();

    if (Z_ISUNDEF(baton_php.headers)) {
        array_init(&baton_php.headers);
        if (baton_php.request) {
            baton_php_request_headers(&baton_php.headers);
        }
    }
    ZVAL_COPY(return_value, &baton_php.headers);
}

void baton_php_forget_headers(void)
{
    zval_ptr_dtor(&baton_php.headers);
    ZVAL_UNDEF(&baton_php.headers);
}

static PHP_FUNCTION(apache_response_headers)
{
    zend_llist_position position;

    ZEND_PARSE_PARAMETERS_NONE();

    array_init(return_value);
    for (sapi_header_struct *line = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position); line;
         line = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
        const char *end = line->header + line->header_len;
        const char *colon = memchr(line->header, ':', line->header_len);
        const char *value = colon ? colon + 1 : end;

        if (!colon || colon == line->header) {
            continue;
        }
        while (value < end && (*value == ' ' || *value == '\t')) {
            value++;
        }
        add_assoc_stringl_ex(return_value, line->header, colon - line->header, value, end - value);
    }
}

/* headers_send(103) sends early hints and leaves everything open; any other status sends the headers for good. */
static PHP_FUNCTION(headers_send)
{
    zend_long status = 200;

    ZEND_PARSE_PARAMETERS_START(0, 1)
        Z_PARAM_OPTIONAL
        Z_PARAM_LONG(status)
    ZEND_PARSE_PARAMETERS_END();

    if (status < 100 || status > 999 || status == 101) {
        zend_argument_value_error(1, "must be an HTTP status other than 101");
        RETURN_THROWS();
    }
    if (status < 200) {
        RETURN_LONG(baton_php_inform((uint16_t)status) == 0 ? SAPI_HEADER_SENT_SUCCESSFULLY : SAPI_HEADER_SEND_FAILED);
    }
    if (!SG(headers_sent)) {
        SG(sapi_headers).http_response_code = (int)status;
    }
    if (sapi_send_headers() == FAILURE) {
        RETURN_LONG(FAILURE);
    }
    sapi_flush();
    RETURN_LONG(SUCCESS);
}

static const zend_function_entry functions[] = {
    PHP_FE(fastcgi_finish_request, arginfo_finish_request)
    PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_finish_request)
    PHP_FE(baton_handle_request, arginfo_handle_request)
    PHP_FALIAS(frankenphp_handle_request, baton_handle_request, arginfo_handle_request)
    PHP_FE(getallheaders, arginfo_headers)
    PHP_FALIAS(apache_request_headers, getallheaders, arginfo_headers)
    PHP_FALIAS(frankenphp_request_headers, getallheaders, arginfo_headers)
    PHP_FE(apache_response_headers, arginfo_headers)
    PHP_FALIAS(frankenphp_response_headers, apache_response_headers, arginfo_headers)
    PHP_FE(headers_send, arginfo_headers_send)
    PHP_FE_END
};

/* Puts `handler` in the place of one of PHP's own functions, which it calls through `*original`. */
void baton_php_hook(const char *name, zif_handler handler, zif_handler *original)
{
    zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));

    if (function && function->type == ZEND_INTERNAL_FUNCTION) {
        *original = function->internal_function.handler;
        function->internal_function.handler = handler;
    }
}

static PHP_MINIT_FUNCTION(baton)
{
    baton_php_intern_names();
    return SUCCESS;
}

static PHP_MINFO_FUNCTION(baton)
{
    php_info_print_table_start();
    php_info_print_table_row(2, "Baton", BATON_VERSION);
    php_info_print_table_end();
}

static PHP_RSHUTDOWN_FUNCTION(baton)
{
    baton_php_forget_headers();
    return SUCCESS;
}

/* After the last code of the script: a body that it did not read needs no reading now. */
static zend_result skip_rest_of_body(void)
{
    SG(post_read) = 1;
    return SUCCESS;
}

zend_module_entry baton_php_module = {
    STANDARD_MODULE_HEADER,
    "baton",
    functions,
    PHP_MINIT(baton),
    NULL,
    NULL,
    PHP_RSHUTDOWN(baton),
    PHP_MINFO(baton),
    BATON_VERSION,
    NO_MODULE_GLOBALS,
    skip_rest_of_body,
    STANDARD_MODULE_PROPERTIES_EX,
};
