/*
 * request.c - between Baton's request and PHP's: request_info, the script's file, the current folder, and the two ends: of the reply
 * and of the request.
 */
#include "baton_php.h"

#include <stdlib.h>
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

static uint32_t requests_begun, requests_max; /* of this process; 0: no bound */
static bool keeps_thread;
static baton_request *answered; /* its reply is complete, and it still has the thread */

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

    requests_begun++;
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

    if (!baton_php_is_worker()) {
        enter_folder(script.ptr, folder_part(script), baton_request_received_ns(request));
    }
}

/* A worker boots without a request; to PHP it is one all the same. */
void baton_php_request_begin_boot(void)
{
    baton_str script = baton_php_worker_script();

    ZVAL_UNDEF(&baton_php.headers);
    SG(request_info).request_method = "GET";
    SG(request_info).query_string = "";
    SG(request_info).request_uri = (char *)baton_php_worker_name();
    SG(request_info).path_translated = (char *)script.ptr;
    SG(request_info).content_length = 0;
    SG(request_info).content_type = "";
    SG(sapi_headers).http_response_code = 200;
    folder_len = 0; /* an earlier run of the script may have gone elsewhere */
    enter_folder(script.ptr, folder_part(script), 0);
}

/* Called by PHP once request_info is in use and the body of a form has been read. */
int baton_php_activate(void)
{
    baton_str script;

    if (baton_php.request && !baton_php_is_worker()) {
        script = baton_php_field(BATON_SCRIPT_FILENAME);
        baton_php_activate_user_ini(script.ptr, folder_part(script), baton_php_field(BATON_DOCUMENT_ROOT));
    } else if (!baton_php.request && SG(request_info).path_translated) {
        /* A worker boots. What it changes later is for it to keep. */
        const char *root = baton_setting("root");
        script = baton_php_worker_script();
        baton_php_activate_user_ini(script.ptr, folder_part(script), (baton_str){root, strlen(root)});
    }
    return SUCCESS;
}

/* 200 and an open file, or the status to refuse with. opcache answers both steps from its memory: no system call for a cached
 * script. */
static int open_script(zend_file_handle *file)
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

/* Runs the script that request_info names. 200, or the status to refuse with. */
int baton_php_run_script(void)
{
    zend_file_handle file;
    int status = open_script(&file);

    if (status == 200) {
        EG(exit_status) = 0;
        php_execute_script(&file);
    }
    /* opcache leaves the handle to us where it did not need the file. */
    if (!file.in_list) {
        zend_destroy_file_handle(&file);
    }
    return status;
}

/* ---- going on without the client --------------------------------------- */

/* fastcgi_finish_request(): the client has its reply; the script works on, and may still ask what the request was. */
void baton_php_request_detach(void)
{
    baton_php.finished = true;
    baton_reply_complete(baton_php.request);
}

/* ---- the end ---------------------------------------------------------- */

void baton_php_thread_settings(bool keeps)
{
    const char *max = baton_setting("max_requests");

    requests_max = max ? (uint32_t)strtoul(max, NULL, 10) : 0;
    keeps_thread = keeps;
}

/* Whether this process has had all the requests that it may have. The last one keeps the thread until the process ends. */
bool baton_php_thread_is_used_up(void)
{
    return requests_max > 0 && requests_begun >= requests_max;
}

void baton_php_free_thread(void)
{
    if (answered) {
        baton_reply_finish(answered);
        answered = NULL;
    }
}

/* The client gets all that there is, and the thread gets no other request yet. */
static void answer(baton_request *request)
{
    if (!baton_php.reply_started) {
        baton_reply_start(request, 500, NULL, 0); /* giving up would free the thread */
    }
    if (!baton_php.finished) {
        baton_reply_complete(request);
    }
    answered = request;
}

/* The last that PHP calls before it frees the request's memory: sessions are saved, output is complete. Finishing here lets the
 * front write while PHP cleans up. */
int baton_php_deactivate(void)
{
    baton_request *request = baton_php.request;

    if (request && !baton_php.disowned) {
        baton_php.request = NULL;
        baton_php_forget_answers();
        if (keeps_thread || baton_php_thread_is_used_up()) {
            answer(request);
        } else if (baton_php.reply_started) {
            baton_reply_finish(request);
        } else {
            baton_reply_abandon(request);
        }
    }
    return SUCCESS;
}

/* What was said of the request lies in memory that is about to be somebody else's. */
void baton_php_request_clear(void)
{
    SG(server_context) = NULL;
    SG(request_info).request_method = NULL;
    SG(request_info).query_string = NULL;
    SG(request_info).request_uri = NULL;
    SG(request_info).path_translated = NULL;
    SG(request_info).content_type = NULL;
    SG(request_info).cookie_data = NULL;
}

void baton_php_request_end(void)
{
    baton_php_deactivate(); /* for a start that failed halfway */
    baton_php_request_clear();
    baton_php_timeouts_idle(false);
}
