/*
 * turn.c - one request in a worker: what PHP does at the start and the end of a request, without ending the script.
 *
 * Renewed for each: output layer, headers, body, uploads, session, ext/filter, and the superglobals but $_ENV. What the script has
 * set by ini_set(), set_error_handler(), putenv() or chdir() stays, and so do its shutdown functions, which run when it ends.
 * As in FrankenPHP.
 */
#include "baton_php.h"

#include "ext/session/php_session.h"
#include "php_output.h"

/* ---- the body of the request ------------------------------------------ */

/* PHP keeps it in a stream that it leaves to the end of the script. What the script has opened as php://input points into that
 * stream and goes before it. */
static void drop_body(void)
{
    zend_resource *resource;

    if (!SG(request_info).request_body) {
        return;
    }
    ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
        php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;

        if (stream && strcmp(stream->ops->label, "Input") == 0) {
            zend_list_close(resource);
        }
    } ZEND_HASH_FOREACH_END();
    php_stream_close(SG(request_info).request_body);
    SG(request_info).request_body = NULL;
}

/* ---- session ---------------------------------------------------------- */

static zend_module_entry *session_module(void)
{
    static zend_module_entry *module;

    if (!module) {
        module = zend_hash_str_find_ptr(&module_registry, "session", sizeof("session") - 1);
    }
    return module;
}

static php_ps_globals *session_of(zend_module_entry *module)
{
#ifdef ZTS
# error "This guest is for a PHP without threads"
#endif
    return module->globals_ptr;
}

enum { SESSION_HANDLERS = sizeof(((php_ps_globals *)0)->mod_user_names) / sizeof(zval) };

/* Saves and closes it, so that its lock is free. The save handlers that the script has set stay. */
static void end_session(void)
{
    zend_module_entry *module = session_module();
    zval kept[SESSION_HANDLERS], *handlers;
    zend_string *class_name;
    php_ps_globals *session;

    if (!module) {
        return;
    }
    session = session_of(module);
    handlers = (zval *)&session->mod_user_names;
    for (size_t i = 0; i < SESSION_HANDLERS; i++) {
        ZVAL_COPY(&kept[i], &handlers[i]);
    }
    class_name = session->mod_user_class_name ? zend_string_copy(session->mod_user_class_name) : NULL;
    module->request_shutdown_func(module->type, module->module_number);
    memcpy(handlers, kept, sizeof(kept));
    session->mod_user_class_name = class_name;
}

static void begin_session(void)
{
    zend_module_entry *module = session_module();

    if (module) {
        module->request_startup_func(module->type, module->module_number);
    }
}

/* One that was started between two requests belongs to neither. */
static void drop_stray_session(void)
{
    zend_module_entry *module = session_module();

    if (module && session_of(module)->session_status == php_session_active) {
        end_session();
    }
}

/* ---- superglobals ----------------------------------------------------- */

static void renew_superglobals(void)
{
    zval *files = &PG(http_globals)[TRACK_VARS_FILES];
    zend_auto_global *global;

    /* The others are replaced by their callbacks. */
    zval_ptr_dtor_nogc(files);
    ZVAL_UNDEF(files);
    zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);

    ZEND_HASH_MAP_FOREACH_PTR(CG(auto_globals), global) {
        /* One that is still armed has not been used so far: it is made when it is. */
        bool wanted = global->auto_global_callback && !(global->jit && global->armed);

        if (wanted && global->name != ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV)) {
            global->armed = global->auto_global_callback(global->name);
        }
    } ZEND_HASH_FOREACH_END();
}

/* ---- output ----------------------------------------------------------- */

static void begin_buffers(void)
{
    zval handler;

    if (PG(output_handler) && *PG(output_handler)) {
        ZVAL_STRING(&handler, PG(output_handler));
        php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
        zval_ptr_dtor(&handler);
    } else if (PG(output_buffering)) {
        php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0, PHP_OUTPUT_HANDLER_STDFLAGS);
    } else if (PG(implicit_flush)) {
        php_output_set_implicit_flush(1);
    }
}

/* ---- the turn --------------------------------------------------------- */

void baton_php_turn_begin(baton_request *request)
{
    /* What the script did between two requests. */
    drop_stray_session();
    drop_body();
    zend_llist_destroy(&SG(sapi_headers).headers);

    baton_php_request_begin(request);
    PG(header_is_being_sent) = 0;
    PG(connection_status) = PHP_CONNECTION_NORMAL;
    EG(exit_status) = 0;
    php_output_activate();
    sapi_activate();
    if (PG(expose_php)) {
        sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
    }
    begin_buffers();
    renew_superglobals();
    begin_session();
    SG(sapi_started) = 1;
}

/* Also after the boot, which PHP takes for a request. A fatal error in here, such as in an output callback, ends the script. */
void baton_php_turn_end(void)
{
    zend_module_entry *filter = zend_hash_str_find_ptr(&module_registry, "filter", sizeof("filter") - 1);
    zend_execute_data *here = EG(current_execute_data);

    php_output_end_all();
    if (filter) {
        filter->request_shutdown_func(filter->type, filter->module_number);
    }
    end_session();
    if (EG(current_execute_data) != here) {
        zend_bailout(); /* the session module has caught one of a save handler */
    }
    php_output_deactivate();
    baton_php_forget_headers();
    drop_body();
    SG(post_read) = 1; /* a body that nobody has read needs no reading now */
    sapi_deactivate(); /* the client has its reply */
    SG(request_info).content_type_dup = NULL;
    SG(request_info).current_user = NULL;
    baton_php_request_clear();
    zend_set_memory_limit(PG(memory_limit));
}
