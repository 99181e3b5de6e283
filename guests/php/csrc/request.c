/*
 * request.c - between Baton's request and PHP's: request_info, the script's file, the current folder, and the two ends: of the reply
 * and of the request.
 */
#include "baton_php.h"

#include <unistd.h>

#include "zend_stream.h"

/* ---- the current folder ----------------------------------------------- */

/* A script starts in its own folder. Asking where we are and going there and back costs three system calls per request;
 * instead we remember where we went. Another look is taken after a script's chdir(), and at times, because the name may by
 * now mean another folder (a deployment that swaps a symbolic link). */
enum { FOLDER_TRUST_NS = 1000 * 1000 * 1000 };

static char folder[MAXPATHLEN];
static size_t folder_len;
static int64_t folder_entered_ns;
static zif_handler php_chdir;

static ZEND_NAMED_FUNCTION(forgetful_chdir)
{
    folder_len = 0;
    php_chdir(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void baton_php_hook_chdir(void)
{
    baton_php_hook("chdir", forgetful_chdir, &php_chdir);
}

static void enter_folder(const char *script, size_t len, int64_t now_ns)
{
    int64_t age_ns = now_ns - folder_entered_ns;

    if (len == folder_len && memcmp(script, folder, len) == 0 && age_ns >= 0 && age_ns < FOLDER_TRUST_NS) {
        return;
    }
    folder_len = 0;
    if (len == 0 || len >= sizeof(folder)) {
        return;
    }
    memcpy(folder, script, len);
    folder[len] = '\0';
    if (chdir(folder) == 0) {
        folder_len = len;
        folder_entered_ns = now_ns;
    }
}

/* ---- the beginning ---------------------------------------------------- */

/* Length of the folder part of a path, with its slash. */
static size_t folder_part(baton_str path)
{
    while (path.len > 0 && path.ptr[path.len - 1] != '/') {
        path.len--;
    }
    return path.len;
}

void baton_php_request_begin(baton_request *request)
{
    baton_str script, type, authorization;

    baton_php.request = request;
    baton_php.reply_started = false;
    baton_php.finished = false;
    ZVAL_UNDEF(&baton_php.headers);

    script = baton_php_field(BATON_SCRIPT_FILENAME);
    SG(server_context) = &baton_php;
    SG(request_info).request_method = baton_php_field(BATON_METHOD).ptr;
    SG(request_info).query_string = (char *)baton_php_field(BATON_QUERY).ptr;
    SG(request_info).request_uri = (char *)baton_php_field(BATON_SCRIPT_NAME).ptr;
    SG(request_info).path_translated = (char *)script.ptr;
    SG(request_info).content_length = (zend_long)baton_body_length(request);
    SG(request_info).content_type = baton_request_find_header(request, "content-type", &type) ? type.ptr : "";
    SG(request_info).proto_num = 1000;
    SG(sapi_headers).http_response_code = 200;
    php_handle_auth_data(baton_request_find_header(request, "authorization", &authorization) ? authorization.ptr : NULL);

    enter_folder(script.ptr, folder_part(script), baton_request_received_ns(request));
}

/* Called by PHP once request_info is in use and the body of a form has been read. */
int baton_php_activate(void)
{
    baton_str script;

    if (!baton_php.request) {
        return SUCCESS; /* PHP's own start */
    }
    script = baton_php_field(BATON_SCRIPT_FILENAME);
    baton_php_activate_user_ini(script.ptr, folder_part(script), baton_php_field(BATON_DOCUMENT_ROOT));
    return SUCCESS;
}

/* 200 and an open file, or the status to refuse with. opcache answers both steps from its memory: no system call for a cached
 * script. */
int baton_php_open_script(zend_file_handle *file)
{
    const char *path = SG(request_info).path_translated;
    int error_reporting = EG(error_reporting);
    zend_string *resolved;
    zend_result opened = FAILURE;

    zend_stream_init_filename(file, path);
    file->primary_script = true;
    resolved = zend_resolve_path(file->filename);
    if (resolved) {
        zend_string_release_ex(resolved, 0);
        EG(error_reporting) = 0; /* PHP's own warning would not name the file */
        opened = zend_stream_open(file);
        EG(error_reporting) = error_reporting;
    }
    if (opened == SUCCESS) {
        return 200;
    }
    if (access(path, R_OK) == -1 && errno == EACCES) {
        char message[MAXPATHLEN + 64];
        snprintf(message, sizeof(message), "Baton: no permission to read %s", path);
        sapi_module.log_message(message, LOG_ERR);
        return 403;
    }
    return 404;
}

/* ---- going on without the client --------------------------------------- */

/* fastcgi_finish_request(): the client has its reply; the script works on, and may still ask what the request was. */
void baton_php_request_detach(void)
{
    baton_php.finished = true;
    baton_reply_complete(baton_php.request);
}

/* ---- the end ---------------------------------------------------------- */

/* The last that PHP calls before it frees the request's memory: sessions are saved, output is complete. Finishing here lets the
 * front write while PHP cleans up. */
int baton_php_deactivate(void)
{
    baton_request *request = baton_php.request;

    if (request && !baton_php.disowned) {
        baton_php.request = NULL;
        if (baton_php.reply_started) {
            baton_reply_finish(request);
        } else {
            baton_reply_abandon(request);
        }
    }
    return SUCCESS;
}

void baton_php_request_end(void)
{
    baton_php_deactivate(); /* for a start that failed halfway */
    SG(server_context) = NULL;
    SG(request_info).request_method = NULL;
    SG(request_info).query_string = NULL;
    SG(request_info).request_uri = NULL;
    SG(request_info).path_translated = NULL;
    SG(request_info).content_type = NULL;
    SG(request_info).cookie_data = NULL;
    baton_php_timeouts_idle();
}
