/*
 * variables.c - what a script can ask about its request: $_SERVER, getenv(), cookies, getallheaders().
 *
 * The names are those that php-fpm gets from nginx's fastcgi.conf, so that applications find what they look for. HTTP_* variables
 * are made of letters, digits and '-' only: other characters would let two header names share a variable.
 */
#include "baton_php.h"

#include "php_variables.h"

#define SERVER_SOFTWARE "Baton/" BATON_VERSION

typedef struct variable {
    const char *name;
    int field; /* enum baton_field, or one of those below */
} variable;

enum {
    COMPUTED = BATON_FIELDS,
    PHP_SELF,
    PATH_TRANSLATED,
    CONTENT_TYPE,
    CONTENT_LENGTH,
    HTTPS,
    SOFTWARE,
    GATEWAY,
    REDIRECT_STATUS,
};

static const variable variables[] = {
    {"SERVER_SOFTWARE", SOFTWARE},
    {"SERVER_NAME", BATON_HOST},
    {"SERVER_ADDR", BATON_SERVER_ADDR},
    {"SERVER_PORT", BATON_SERVER_PORT},
    {"REMOTE_ADDR", BATON_REMOTE_ADDR},
    {"REMOTE_PORT", BATON_REMOTE_PORT},
    {"REQUEST_SCHEME", BATON_SCHEME},
    {"SERVER_PROTOCOL", BATON_PROTOCOL},
    {"DOCUMENT_ROOT", BATON_DOCUMENT_ROOT},
    {"DOCUMENT_URI", PHP_SELF},
    {"REQUEST_URI", BATON_TARGET},
    {"SCRIPT_NAME", BATON_SCRIPT_NAME},
    {"CONTENT_LENGTH", CONTENT_LENGTH},
    {"CONTENT_TYPE", CONTENT_TYPE},
    {"REQUEST_METHOD", BATON_METHOD},
    {"QUERY_STRING", BATON_QUERY},
    {"SCRIPT_FILENAME", BATON_SCRIPT_FILENAME},
    {"PATH_INFO", BATON_PATH_INFO},
    {"PATH_TRANSLATED", PATH_TRANSLATED},
    {"GATEWAY_INTERFACE", GATEWAY},
    {"REDIRECT_STATUS", REDIRECT_STATUS},
    {"HTTPS", HTTPS},
    {"PHP_SELF", PHP_SELF},
};

enum { VARIABLES = sizeof(variables) / sizeof(*variables) };

/* Room for a value that is put together; at home on the stack of who asks. */
typedef struct scratch {
    char bytes[32];
    char *long_value; /* emalloc'd, or NULL */
} scratch;

static baton_str literal(const char *text)
{
    return (baton_str){text, strlen(text)};
}

static baton_str joined(baton_str a, baton_str b, scratch *room)
{
    room->long_value = emalloc(a.len + b.len + 1);
    memcpy(room->long_value, a.ptr, a.len);
    memcpy(room->long_value + a.len, b.ptr, b.len);
    room->long_value[a.len + b.len] = '\0';
    return (baton_str){room->long_value, a.len + b.len};
}

/* The length is that of the body that was received, whatever the client announced. */
static baton_str content_length(scratch *room)
{
    baton_str sent;
    uint64_t len = baton_body_length(baton_php.request);

    if (len == 0 && !baton_request_find_header(baton_php.request, "content-length", &sent)) {
        return literal("");
    }
    snprintf(room->bytes, sizeof(room->bytes), "%llu", (unsigned long long)len);
    return literal(room->bytes);
}

/* The value of a variable. False: this request has no such variable. */
static bool value_of(int field, baton_str *value, scratch *room)
{
    baton_str path_info;

    room->long_value = NULL;
    switch (field) {
    case PHP_SELF:
        path_info = baton_php_field(BATON_PATH_INFO);
        *value = baton_php_field(BATON_SCRIPT_NAME);
        if (path_info.len > 0) {
            *value = joined(*value, path_info, room);
        }
        return true;
    case PATH_TRANSLATED:
        path_info = baton_php_field(BATON_PATH_INFO);
        if (path_info.len > 0) {
            *value = joined(baton_php_field(BATON_DOCUMENT_ROOT), path_info, room);
        }
        return path_info.len > 0;
    case CONTENT_TYPE:
        if (!baton_request_find_header(baton_php.request, "content-type", value)) {
            *value = literal("");
        }
        return true;
    case CONTENT_LENGTH:
        *value = content_length(room);
        return true;
    case HTTPS:
        path_info = baton_php_field(BATON_SCHEME);
        *value = literal("on");
        return path_info.len == 5 && memcmp(path_info.ptr, "https", 5) == 0;
    case SOFTWARE:
        *value = literal(SERVER_SOFTWARE);
        return true;
    case GATEWAY:
        *value = literal("CGI/1.1");
        return true;
    case REDIRECT_STATUS:
        *value = literal("200");
        return true;
    default:
        *value = baton_php_field((enum baton_field)field);
        return true;
    }
}

static void release(scratch *room)
{
    if (room->long_value) {
        efree(room->long_value);
    }
}

/* ---- request headers -------------------------------------------------- */

enum { HEADERS_ON_STACK = 64, HEADER_NAME_MAX = 256 };

typedef struct header_list {
    baton_header on_stack[HEADERS_ON_STACK];
    baton_header *all;
    uint32_t count;
} header_list;

static void list_headers(header_list *list)
{
    uint32_t count = baton_request_header_count(baton_php.request);

    list->all = count <= HEADERS_ON_STACK ? list->on_stack : safe_emalloc(count, sizeof(baton_header), 0);
    for (list->count = 0; list->count < count; list->count++) {
        if (!baton_request_header(baton_php.request, list->count, &list->all[list->count])) {
            break;
        }
    }
}

static void free_headers(header_list *list)
{
    if (list->all != list->on_stack) {
        efree(list->all);
    }
}

static bool same_name(baton_str a, baton_str b)
{
    return a.len == b.len && strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

static bool is_name(baton_str name, const char *wanted, size_t wanted_len)
{
    return name.len == wanted_len && strncasecmp(name.ptr, wanted, wanted_len) == 0;
}

static bool seen_before(const header_list *list, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (same_name(list->all[i].name, list->all[index].name)) {
            return true;
        }
    }
    return false;
}

/* The value of the header at `index`, with those of its later namesakes: joined by ", ", cookies by "; ". */
static baton_str whole_value(const header_list *list, uint32_t index, scratch *room)
{
    baton_str name = list->all[index].name;
    baton_str value = list->all[index].value;
    baton_str comma = literal(is_name(name, "cookie", 6) ? "; " : ", ");
    char *before;

    room->long_value = NULL;
    if (is_name(name, "content-length", 14)) {
        return content_length(room);
    }
    for (uint32_t i = index + 1; i < list->count; i++) {
        if (same_name(list->all[i].name, name)) {
            before = room->long_value;
            value = joined(value, comma, room);
            if (before) {
                efree(before);
            }
            before = room->long_value;
            value = joined(value, list->all[i].value, room);
            efree(before);
        }
    }
    return value;
}

/* "Accept-Language" -> "HTTP_ACCEPT_LANGUAGE". Length, or 0 for a name that gets no variable. */
static size_t variable_name(baton_str name, char *out)
{
    if (name.len + sizeof("HTTP_") > HEADER_NAME_MAX) {
        return 0;
    }
    memcpy(out, "HTTP_", 5);
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (c >= 'a' && c <= 'z') {
            c -= 'a' - 'A';
        } else if (c == '-') {
            c = '_';
        } else if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9')) {
            return 0;
        }
        out[5 + i] = c;
    }
    out[5 + name.len] = '\0';
    return 5 + name.len;
}

/* A client must not choose the proxy of HTTP libraries that read HTTP_PROXY. */
static bool is_proxy(baton_str name)
{
    return is_name(name, "proxy", 5);
}

/* ---- $_SERVER --------------------------------------------------------- */

/* The names as strings that live as long as the process: their hashes are computed once. */
static zend_string *names[VARIABLES];

enum { SERVER_SIZE = 64 }; /* grows by itself beyond */

void baton_php_intern_names(void)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        names[i] = zend_string_init_interned(variables[i].name, strlen(variables[i].name), 1);
    }
}

void baton_php_put(zval *server, zend_string *name, baton_str value)
{
    zval copy;

    ZVAL_STRINGL_FAST(&copy, value.ptr, value.len);
    zend_hash_update(Z_ARRVAL_P(server), name, &copy);
}

void baton_php_each_variable(zval *server, baton_php_put_variable put)
{
    header_list list;
    scratch room;
    baton_str value;
    char name[HEADER_NAME_MAX];

    list_headers(&list);
    for (uint32_t i = 0; i < list.count; i++) {
        size_t name_len;
        zend_string *key;
        if (is_proxy(list.all[i].name) || seen_before(&list, i) || !(name_len = variable_name(list.all[i].name, name))) {
            continue;
        }
        key = zend_string_init_existing_interned(name, name_len, 0);
        put(server, key, whole_value(&list, i, &room));
        zend_string_release(key);
        release(&room);
    }
    free_headers(&list);

    for (size_t i = 0; i < VARIABLES; i++) {
        if (value_of(variables[i].field, &value, &room)) {
            put(server, names[i], value);
            release(&room);
        }
    }
}

/* While a worker boots there is no request: what it finds then is about itself. */
static void put_boot_variables(zval *server)
{
    baton_str name = literal(baton_php_worker_name());
    const struct {
        const char *name;
        baton_str value;
    } known[] = {
        {"SERVER_SOFTWARE", literal(SERVER_SOFTWARE)},
        {"SERVER_PROTOCOL", literal("HTTP/1.1")},
        {"GATEWAY_INTERFACE", literal("CGI/1.1")},
        {"DOCUMENT_ROOT", literal(baton_setting("root"))},
        {"REQUEST_METHOD", literal("GET")},
        {"REQUEST_URI", name},
        {"QUERY_STRING", literal("")},
        {"SCRIPT_NAME", name},
        {"SCRIPT_FILENAME", baton_php_worker_script()},
        {"DOCUMENT_URI", name},
        {"PHP_SELF", name},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        add_assoc_stringl(server, known[i].name, known[i].value.ptr, known[i].value.len);
    }
}

void baton_php_register_variables(zval *server)
{
    zend_hash_extend(Z_ARRVAL_P(server), SERVER_SIZE, 0);
    php_import_environment_variables(server);
    if (baton_php.request) {
        baton_php_each_variable(server, baton_php_filter_begin() ? baton_php_put_filtered : baton_php_put);
    } else if (baton_php_is_worker()) {
        put_boot_variables(server);
    }
}

/* By this variable the adapters of frameworks know that they are in a worker. */
#define IN_WORKER "FRANKENPHP_WORKER"

static void (*php_import_environment)(zval *array);

static void import_environment(zval *array)
{
    php_import_environment(array);
    add_assoc_stringl(array, IN_WORKER, "1", 1);
}

void baton_php_hook_environment(void)
{
    if (baton_php_is_worker()) {
        php_import_environment = php_import_environment_variables;
        php_import_environment_variables = import_environment;
    }
}

/* ---- getenv(), cookies, getallheaders() ------------------------------- */

/* The value of the header with this variable's name. It is in the request's memory, in `room`, or `room->long_value`. */
static bool header_variable(const char *wanted, size_t wanted_len, baton_str *value, scratch *room)
{
    header_list list;
    char name[HEADER_NAME_MAX];
    bool found = false;

    list_headers(&list);
    for (uint32_t i = 0; i < list.count && !found; i++) {
        size_t len = is_proxy(list.all[i].name) ? 0 : variable_name(list.all[i].name, name);
        found = len == wanted_len && len > 0 && memcmp(name, wanted, len) == 0;
        if (found) {
            *value = whole_value(&list, i, room);
        }
    }
    free_headers(&list);
    return found;
}

static bool find_variable(const char *name, size_t name_len, baton_str *value, scratch *room)
{
    room->long_value = NULL;
    if (name_len > 5 && memcmp(name, "HTTP_", 5) == 0) {
        return header_variable(name, name_len, value, room);
    }
    for (size_t i = 0; i < VARIABLES; i++) {
        if (strlen(variables[i].name) == name_len && memcmp(variables[i].name, name, name_len) == 0) {
            return value_of(variables[i].field, value, room);
        }
    }
    return false;
}

/* What PHP was given last, where it had to be put together. */
static scratch environment_answer, cookie_answer;

static void forget(scratch *room)
{
    release(room);
    room->long_value = NULL;
}

void baton_php_forget_answers(void)
{
    forget(&environment_answer);
    forget(&cookie_answer);
}

/* PHP copies the answer at once, and asks the process environment when there is none. */
char *baton_php_getenv(const char *name, size_t name_len)
{
    baton_str value;

    forget(&environment_answer);
    if (baton_php.request && find_variable(name, name_len, &value, &environment_answer)) {
        return (char *)value.ptr;
    }
    if (baton_php_is_worker() && name_len == sizeof(IN_WORKER) - 1 && memcmp(name, IN_WORKER, name_len) == 0) {
        return "1";
    }
    return NULL;
}

/* PHP reads them until the request ends. */
char *baton_php_read_cookies(void)
{
    baton_str value;

    if (baton_php.request && find_variable("HTTP_COOKIE", sizeof("HTTP_COOKIE") - 1, &value, &cookie_answer)) {
        return (char *)value.ptr;
    }
    return NULL;
}

/* Names as "Content-Type", whatever case the client wrote, as under php-fpm. */
void baton_php_request_headers(zval *array)
{
    header_list list;
    scratch room;
    baton_str value;

    list_headers(&list);
    for (uint32_t i = 0; i < list.count; i++) {
        zend_string *name;
        bool first = true;

        if (seen_before(&list, i)) {
            continue;
        }
        name = zend_string_init(list.all[i].name.ptr, list.all[i].name.len, 0);
        for (size_t at = 0; at < ZSTR_LEN(name); at++) {
            char *c = &ZSTR_VAL(name)[at];
            *c = first ? zend_toupper_ascii(*c) : zend_tolower_ascii(*c);
            first = *c == '-';
        }
        value = whole_value(&list, i, &room);
        add_assoc_stringl_ex(array, ZSTR_VAL(name), ZSTR_LEN(name), value.ptr, value.len);
        zend_string_release(name);
        release(&room);
    }
    free_headers(&list);
}
