/*
 * sapi.c - the module table: how PHP writes, answers, reads a body and logs.
 */
#include "baton_php.h"

#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "php_variables.h"
#include "zend_observer.h"

baton_php_state baton_php;

static int start_module(sapi_module_struct *module)
{
    return php_module_startup(module, &baton_php_module);
}

/* ---- the body of the reply -------------------------------------------- */

static size_t write_body(const char *bytes, size_t len)
{
    if (!baton_php.request) {
        if (!SG(server_context)) {
            /* PHP speaks while it starts. */
            zend_quiet_write(STDERR_FILENO, bytes, len);
        }
        return len;
    }
    if (baton_php.finished || baton_php.disowned) {
        return len; /* for nobody */
    }
    if (baton_reply_write(baton_php.request, bytes, len) != 0) {
        php_handle_aborted_connection(); /* does not return, unless ignore_user_abort */
        return 0;
    }
    return len;
}

/* Only what was written: headers stay open to change until there is output, as under php-fpm. */
static void flush_body(void *context)
{
    (void)context;
    if (baton_php.request && baton_php.reply_started && !baton_php.finished && !baton_php.disowned && baton_reply_flush(baton_php.request) != 0) {
        php_handle_aborted_connection();
    }
}

/* ---- status and headers ----------------------------------------------- */

enum { HEADERS_ON_STACK = 64 };

static bool is_named(const sapi_header_struct *header, const char *name, size_t name_len)
{
    return header->header_len > name_len && header->header[name_len] == ':' && strncasecmp(header->header, name, name_len) == 0;
}

#define IS_NAMED(header, name) is_named((header), (name), sizeof(name) - 1)

/* Splits "Name: value". False for a line that is no header. */
static bool split_header(const sapi_header_struct *line, baton_header *header)
{
    const char *end = line->header + line->header_len;
    const char *colon = memchr(line->header, ':', line->header_len);
    const char *value;

    if (!colon || colon == line->header) {
        return false;
    }
    for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++) {
    }
    header->name.ptr = line->header;
    header->name.len = colon - line->header;
    header->value.ptr = value;
    header->value.len = end - value;
    return true;
}

/* Hands headers to `send`, without those that the caller wants left out. */
static int with_headers(sapi_headers_struct *from, bool drop_type, int (*send)(uint16_t, const baton_header *, uint32_t), uint16_t status)
{
    baton_header on_stack[HEADERS_ON_STACK];
    size_t room = zend_llist_count(&from->headers);
    baton_header *headers = room <= HEADERS_ON_STACK ? on_stack : safe_emalloc(room, sizeof(*headers), 0);
    zend_llist_position position;
    uint32_t count = 0;
    int result;

    for (sapi_header_struct *line = zend_llist_get_first_ex(&from->headers, &position); line;
         line = zend_llist_get_next_ex(&from->headers, &position)) {
        if (IS_NAMED(line, "Status") || (drop_type && IS_NAMED(line, "Content-Type"))) {
            continue;
        }
        count += split_header(line, &headers[count]);
    }
    result = send(status, headers, count);
    if (headers != on_stack) {
        efree(headers);
    }
    return result;
}

static int start_reply(uint16_t status, const baton_header *headers, uint32_t count)
{
    return baton_reply_start(baton_php.request, status, headers, count);
}

static int inform(uint16_t status, const baton_header *headers, uint32_t count)
{
    return baton_reply_inform(baton_php.request, status, headers, count);
}

/* Like php-fpm, a header "Status: 404 Not Found" sets the status where nothing else did. */
static int reply_status(sapi_headers_struct *from)
{
    int status = from->http_response_code;
    zend_llist_position position;

    if (status == 200) {
        for (sapi_header_struct *line = zend_llist_get_first_ex(&from->headers, &position); line;
             line = zend_llist_get_next_ex(&from->headers, &position)) {
            if (IS_NAMED(line, "Status")) {
                status = atoi(line->header + sizeof("Status:") - 1);
                break;
            }
        }
    }
    return status >= 200 && status <= 999 ? status : 500;
}

static int send_headers(sapi_headers_struct *headers)
{
    int status;

    if (!baton_php.request || baton_php.disowned) {
        return SAPI_HEADER_SENT_SUCCESSFULLY;
    }
    status = reply_status(headers);
    if (with_headers(headers, status == 304, start_reply, (uint16_t)status) != 0 && errno == EMSGSIZE) {
        sapi_module.log_message("Baton: the reply's headers are too long (64 KiB at most)", LOG_ERR);
        start_reply(500, NULL, 0);
    }
    /* A client that has gone shows when the body is written. */
    baton_php.reply_started = true;
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/* An informational reply with the headers that are set so far. */
int baton_php_inform(uint16_t status)
{
    if (!baton_php.request || baton_php.disowned || SG(headers_sent)) {
        return -1;
    }
    return with_headers(&SG(sapi_headers), true, inform, status);
}

/* ---- the request ------------------------------------------------------ */

/* PHP takes a short read for the end, so this fills the buffer while there is more. */
static size_t read_body(char *buffer, size_t len)
{
    size_t got = 0;

    while (baton_php.request && got < len) {
        ssize_t n = baton_body_read(baton_php.request, buffer + got, len - got);
        if (n < 0) {
            sapi_module.log_message("Baton: the request's body could not be read", LOG_ERR);
        }
        if (n <= 0) {
            break;
        }
        got += (size_t)n;
    }
    return got;
}

static zend_result request_time(double *seconds)
{
    if (!baton_php.request) {
        return FAILURE;
    }
    *seconds = (double)baton_request_received_ns(baton_php.request) / 1e9;
    return SUCCESS;
}

/* ---- the log ---------------------------------------------------------- */

static char last_line[512];

const char *baton_php_last_log_line(void)
{
    return last_line;
}

/* One write per message, so that those of several processes do not mix. The front adds app, pid and request. */
static void log_message(const char *message, int priority)
{
    size_t len = strlen(message);
    struct iovec parts[2] = {{(void *)message, len}, {(void *)"\n", 1}};

    (void)priority;
    snprintf(last_line, sizeof(last_line), "%.*s", (int)strcspn(message, "\n"), message);
    if (writev(STDERR_FILENO, parts, 2) < 0) {
        /* nowhere left to say it */
    }
}

/* PHP answers 500 for a fatal error only where display_errors is off. Here the status tells the truth in both cases. */
static void on_error(int type, zend_string *file, uint32_t line, zend_string *message)
{
    (void)file, (void)line, (void)message;
    if ((type & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_PARSE)) && baton_php.request && !SG(headers_sent) &&
        SG(sapi_headers).http_response_code == 200) {
        sapi_header_op(SAPI_HEADER_SET_STATUS, (void *)(zend_intptr_t)500);
    }
}

void baton_php_watch_fatal_errors(void)
{
    zend_observer_error_register(on_error);
}

sapi_module_struct baton_php_sapi = {
    .name = "fpm-fcgi",
    .pretty_name = "Baton",
    .startup = start_module,
    .shutdown = php_module_shutdown_wrapper,
    .activate = baton_php_activate,
    .deactivate = baton_php_deactivate,
    .ub_write = write_body,
    .flush = flush_body,
    .getenv = baton_php_getenv,
    .sapi_error = php_error,
    .send_headers = send_headers,
    .read_post = read_body,
    .read_cookies = baton_php_read_cookies,
    .register_server_variables = baton_php_register_variables,
    .log_message = log_message,
    .get_request_time = request_time,
    .php_ini_ignore_cwd = 1,
};
