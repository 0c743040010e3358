/* Reads whole files into memory. */
#include "train/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool fvi_fail_system(fv_error *error, fv_status status, const char *path, const char *what,
                     int code)
{
    char text[200];
    if (strerror_r(code, text, sizeof text) != 0)
        snprintf(text, sizeof text, "error %d", code);
    return fv_fail(error, status, "%s: %s: %s", path, what, text);
}

/* Where the bytes go, and how to complain. */
typedef struct {
    const char *name;
    char *bytes;
    size_t used, room;
    fv_error *error;
    fv_status status;
} reader;

/* Reads to the end whatever size the system announced: files grow, and pipes announce none. */
static bool read_to_end(reader *r, int file)
{
    for (;;) {
        if (r->used == r->room) {
            char *more = fvi_resize(r->bytes, r->room, 2);
            if (more == NULL)
                return fv_fail(r->error, FV_FAILED, "%s: out of memory after %zu bytes", r->name,
                               r->used);
            r->bytes = more;
            r->room *= 2;
        }
        ssize_t got = read(file, r->bytes + r->used, r->room - r->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fvi_fail_system(r->error, r->status, r->name, "cannot read", errno);
        if (got == 0)
            break;
        r->used += (size_t)got;
        if (r->used > FVI_FILE_MAX)
            return fv_fail(r->error, r->status, "%s: longer than %llu bytes, the most that is read",
                           r->name, (unsigned long long)FVI_FILE_MAX);
    }
    r->bytes[r->used] = 0; /* there is room: it was not full before the last read */
    return true;
}

static bool read_open(reader *r, int file, bool regular)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return fvi_fail_system(r->error, r->status, r->name, "cannot read", errno);
    if (S_ISDIR(about.st_mode))
        return fv_fail(r->error, r->status, "%s: is a directory, expected a file", r->name);
    if (regular && !S_ISREG(about.st_mode))
        return fv_fail(r->error, r->status, "%s: is a pipe or a device, expected a regular file",
                       r->name);
    if (regular && about.st_size == 0)
        return fv_fail(r->error, r->status, "%s: the file is empty", r->name);
    bool sized = S_ISREG(about.st_mode) && about.st_size > 0;
    if (sized && (unsigned long long)about.st_size > FVI_FILE_MAX)
        return fv_fail(r->error, r->status, "%s: %llu bytes, the most that is read is %llu",
                       r->name, (unsigned long long)about.st_size,
                       (unsigned long long)FVI_FILE_MAX);
    if (!fvi_add(sized ? (size_t)about.st_size : 4095, 1, &r->room) ||
        (r->bytes = fvi_resize(NULL, r->room, 1)) == NULL)
        return fv_fail(r->error, FV_FAILED, "%s: out of memory for %llu bytes", r->name,
                       (unsigned long long)about.st_size);
    return read_to_end(r, file);
}

static char *load(const char *path, bool regular, size_t *length, fv_error *error, fv_status status)
{
    const bool standard = !regular && strcmp(path, "-") == 0;
    reader r = {.name = standard ? "standard input" : path, .error = error, .status = status};
    int file = STDIN_FILENO;
    *length = 0;
    if (!standard) {
        /* without O_NONBLOCK opening a pipe that nobody writes to would wait for ever */
        const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (regular ? O_NONBLOCK : 0);
        do
            file = open(path, flags);
        while (file < 0 && errno == EINTR);
    }
    if (file < 0) {
        fvi_fail_system(error, status, path, "cannot open", errno);
        return NULL;
    }
    const bool ok = read_open(&r, file, regular);
    if (!standard)
        close(file);
    if (!ok) {
        fvi_free(r.bytes);
        return NULL;
    }
    *length = r.used;
    return r.bytes;
}

char *fvi_read_file(const char *path, size_t *length, fv_error *error, fv_status status)
{
    return load(path, false, length, error, status);
}

char *fvi_read_regular(const char *path, size_t *length, fv_error *error, fv_status status)
{
    return load(path, true, length, error, status);
}
