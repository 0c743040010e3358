/* The metrics file: one JSON object a line, appended as training goes on, cut back when it resumes. */
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/internal.h"
#include "train/files/files.h"

/* ---- appending ----------------------------------------------------------------------------------- */

/* Whether the text is one JSON object without a newline. */
static bool check_line(const char *path, const char *json, fv_error *error)
{
    json_error_t why;
    json_t *value = json_loads(json, 0, &why);
    bool good = json_is_object(value) && strchr(json, '\n') == NULL;
    json_decref(value);
    if (!good)
        return fv_fail(error, FV_USAGE,
                       "%s: a line of metrics must be one JSON object, not: %.100s", path, json);
    return true;
}

/* Writes all bytes at the end of the file, or none: what a full disk took of them is cut off again. */
static bool append(int file, const char *bytes, size_t length)
{
    struct stat before;
    if (fstat(file, &before) != 0)
        return false;
    ssize_t written = write(file, bytes, length);
    if (written == (ssize_t)length)
        return true;
    int why = written < 0 ? errno : ENOSPC;
    if (written > 0 && ftruncate(file, before.st_size) != 0)
        why = errno;
    errno = why;
    return false;
}

bool fv_metrics_append(const char *path, const char *json, fv_error *error)
{
    if (path == NULL || json == NULL)
        return fv_fail(error, FV_USAGE, "metrics: no path or no text");
    if (!check_line(path, json, error))
        return false;
    size_t length = strlen(json);
    char *line = fvi_text(json, length);
    if (line == NULL)
        return fv_fail(error, FV_FAILED, "%s: out of memory", path);
    line[length] = '\n'; /* where the final NUL was: from here on it is bytes, not a text */
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    bool ok = file >= 0 && append(file, line, length + 1);
    int why = errno;
    if (file >= 0 && close(file) != 0 && ok) {
        ok = false;
        why = errno;
    }
    fvi_free(line);
    return ok || fvi_fail_system(error, FV_DISK, path, "writing metrics failed", why);
}

/* ---- cutting ------------------------------------------------------------------------------------- */

/* What becomes of a line. One without a whole number "epoch" belongs to no epoch and stays. */
typedef enum { STAYS, GOES, MALFORMED } verdict;

static verdict judge(const char *line, size_t length, uint64_t epoch, json_error_t *why)
{
    json_t *value = json_loadb(line, length, 0, why);
    verdict v = MALFORMED;
    if (json_is_object(value)) {
        const json_t *its = json_object_get(value, "epoch");
        json_int_t number = json_integer_value(its);
        v = number > 0 && (uint64_t)number > epoch ? GOES : STAYS;
    } else if (value != NULL) {
        why->column = 1;
        memcpy(why->text, "no object", sizeof "no object");
    }
    json_decref(value);
    return v;
}

/* Moves the lines that stay to the front. A last line without its newline was cut short by a crash: it
 * goes unless it is whole, and then gets the newline, in place of the NUL that stands behind the bytes. */
static bool cut(const char *path, char *bytes, size_t *length, uint64_t epoch, fv_error *error)
{
    size_t kept = 0, number = 1;
    for (size_t at = 0, next; at < *length; at = next, number++) {
        const char *newline = memchr(bytes + at, '\n', *length - at);
        size_t end = newline ? (size_t)(newline - bytes) : *length;
        next = newline ? end + 1 : end;
        json_error_t why;
        verdict v = judge(bytes + at, end - at, epoch, &why);
        if (v == MALFORMED && newline != NULL)
            return fv_fail(error, FV_DATA, "%s:%zu:%d: %s; expected one JSON object", path, number,
                           why.column > 0 ? why.column : 1, why.text);
        if (v != STAYS)
            continue;
        memmove(bytes + kept, bytes + at, end - at);
        kept += end - at;
        bytes[kept++] = '\n';
    }
    *length = kept;
    return true;
}

bool fv_metrics_cut(const char *path, uint64_t epoch, fv_error *error)
{
    size_t length;
    if (path == NULL)
        return fv_fail(error, FV_USAGE, "metrics: no path");
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return true;
    char *bytes = fvi_read_file(path, &length, error, FV_DATA);
    if (bytes == NULL)
        return false;
    size_t before = length;
    bool ok = cut(path, bytes, &length, epoch, error) &&
              (length == before || fvi_write_file(path, bytes, length, error));
    fvi_free(bytes);
    return ok;
}
