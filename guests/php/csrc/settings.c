/*
 * settings.c - ini values: those that the front hands over, and .user.ini files.
 */
#include "baton_php.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "php_ini.h"
#include "php_ini_builder.h"

/* Calls `each` with every `name=value` line of a setting, without surrounding blanks. Comments and empty lines are skipped. */
static void each_line(const char *setting, void (*each)(const char *line, size_t name_len, void *context), void *context)
{
    const char *text = baton_setting(setting);

    while (text && *text) {
        const char *end = text + strcspn(text, "\n");
        const char *next = *end ? end + 1 : end;

        while (text < end && isspace((unsigned char)*text)) {
            text++;
        }
        while (end > text && isspace((unsigned char)end[-1])) {
            end--;
        }
        if (text < end && *text != ';' && *text != '#') {
            const char *equals = memchr(text, '=', end - text);
            const char *name_end = equals ? equals : end;
            const char *value = equals ? equals + 1 : end;
            char *line = NULL;

            while (name_end > text && isspace((unsigned char)name_end[-1])) {
                name_end--;
            }
            while (value < end && isspace((unsigned char)*value)) {
                value++;
            }
            if (asprintf(&line, "%.*s%s%.*s", (int)(name_end - text), text, equals ? "=" : "", (int)(end - value), value) >= 0) {
                each(line, name_end - text, context);
                free(line);
            }
        }
        text = next;
    }
}

static void define_line(const char *line, size_t name_len, void *builder)
{
    (void)name_len;
    php_ini_builder_define(builder, line);
}

/* Values that are there from the start, so that they also size opcache and load extensions. Later ones win. */
char *baton_php_ini_entries(void)
{
    struct php_ini_builder builder;

    php_ini_builder_init(&builder);
    each_line("ini", define_line, &builder);
    each_line("ini_user", define_line, &builder);
    each_line("ini_admin", define_line, &builder);
    return php_ini_builder_finish(&builder);
}

static void lock_line(const char *line, size_t name_len, void *context)
{
    zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), line, name_len);

    (void)context;
    if (entry) {
        entry->modifiable = ZEND_INI_SYSTEM;
    }
}

/* Neither ini_set() nor a .user.ini file changes an administrator's value. */
void baton_php_lock_admin_ini(void)
{
    each_line("ini_admin", lock_line, NULL);
}

/* ---- .user.ini, as php-fpm reads it ----------------------------------- */

enum { USER_INI_FOLDERS_MAX = 512 };

typedef struct user_ini {
    time_t expires;
    HashTable values;
} user_ini;

static HashTable folders; /* folder -> user_ini */
static bool folders_ready;

static void free_folder(zval *slot)
{
    user_ini *ini = Z_PTR_P(slot);

    zend_hash_destroy(&ini->values);
    pefree(ini, 1);
}

/* Reads the files from the document root down to `dir`; outside of the root, that of `dir` alone. `dir` ends in a slash. */
static void read_folder(user_ini *ini, const char *dir, size_t dir_len, baton_str root)
{
    size_t at = dir_len - 1;
    char path[MAXPATHLEN];

    zend_hash_clean(&ini->values);
    while (root.len > 0 && root.ptr[root.len - 1] == '/') {
        root.len--;
    }
    if (dir_len > root.len && memcmp(dir, root.ptr, root.len) == 0 && dir[root.len] == '/') {
        at = root.len;
    }
    for (; at < dir_len && at < sizeof(path); at++) {
        if (dir[at] == '/') {
            memcpy(path, dir, at);
            path[at] = '\0';
            php_parse_user_ini_file(path, PG(user_ini_filename), &ini->values);
        }
    }
}

void baton_php_activate_user_ini(const char *script, size_t dir_len, baton_str document_root)
{
    time_t now = (time_t)sapi_get_request_time();
    user_ini *ini;

    if (dir_len == 0 || !PG(user_ini_filename) || !*PG(user_ini_filename)) {
        return;
    }
    if (!folders_ready) {
        zend_hash_init(&folders, 8, NULL, free_folder, 1);
        folders_ready = true;
    }
    ini = zend_hash_str_find_ptr(&folders, script, dir_len);
    if (!ini) {
        if (zend_hash_num_elements(&folders) >= USER_INI_FOLDERS_MAX) {
            zend_hash_clean(&folders);
        }
        ini = pemalloc(sizeof(*ini), 1);
        ini->expires = 0;
        zend_hash_init(&ini->values, 0, NULL, config_zval_dtor, 1);
        zend_hash_str_update_ptr(&folders, script, dir_len, ini);
    }
    if (now > ini->expires) {
        read_folder(ini, script, dir_len, document_root);
        ini->expires = now + PG(user_ini_cache_ttl);
    }
    if (zend_hash_num_elements(&ini->values) > 0) {
        php_ini_activate_config(&ini->values, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
    }
}
