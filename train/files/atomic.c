/* Replaces a file in one step, so that whoever reads it, even after a crash, finds the old or the new one.
 *
 * The new bytes go to a temporary beside the file; once they are on the disk (fsync) the temporary is renamed
 * over the file, and the folder is told to remember that (fsync again). The temporary is made with O_EXCL
 * under a name of this process rather than by mkstemp, so that its mode follows the umask without reading
 * it, which cannot be done safely among threads. A process that is killed leaves its temporary behind. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "train/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

const fvi_system fvi_system_real = {real_open, fchmod, write, fsync, close, rename, unlink};

enum {
    NAME_KEPT = 200, /* bytes of the name that the temporary repeats: file systems allow 255 */
    MAX_TRIES = 100  /* temporaries of this process for the same file */
};

/* Makes a call again while signals interrupt it. */
#define AGAIN(result, call)                                                                        \
    do                                                                                             \
        result = (call);                                                                           \
    while (result < 0 && errno == EINTR)

typedef struct {
    const fvi_system *system;
    const char *path; /* as given, for messages */
    fv_error *error;
    char target[PATH_MAX]; /* without symbolic links */
    size_t folder;         /* bytes of target up to and with the last '/' */
    char temporary[PATH_MAX + NAME_KEPT];
    bool exists;
    mode_t mode;
} writer;

static bool failed(const writer *w, const char *what)
{
    return fvi_fail_system(w->error, FV_DISK, w->path, what, errno);
}

/* Fills target, folder, exists and mode. A link to nowhere counts as no file: it is replaced. */
static bool find_target(writer *w)
{
    struct stat about;
    const size_t length = strlen(w->path);
    if (length == 0 || w->path[length - 1] == '/')
        return fv_fail(w->error, FV_DISK, "%s: cannot write: a file name is expected",
                       length == 0 ? "\"\"" : w->path);
    if (realpath(w->path, w->target) == NULL) {
        if (errno != ENOENT || length >= sizeof w->target) {
            errno = length >= sizeof w->target ? ENAMETOOLONG : errno;
            return failed(w, "cannot write");
        }
        memcpy(w->target, w->path, length + 1);
    } else {
        if (stat(w->target, &about) != 0)
            return failed(w, "cannot write");
        if (!S_ISREG(about.st_mode))
            return fv_fail(w->error, FV_DISK, "%s: is %s, expected a regular file or none", w->path,
                           S_ISDIR(about.st_mode) ? "a directory" : "a pipe or a device");
        w->exists = true;
        w->mode = about.st_mode & 0777;
    }
    const char *slash = strrchr(w->target, '/');
    w->folder = slash ? (size_t)(slash - w->target) + 1 : 0;
    return true;
}

static int open_folder(writer *w)
{
    char *name = w->temporary; /* not in use yet */
    memcpy(name, w->target, w->folder);
    strcpy(name + w->folder, w->folder == 0 ? "." : "");
    int folder;
    AGAIN(folder, w->system->open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    return folder;
}

static int open_temporary(writer *w)
{
    int file = -1;
    for (int n = 0; n < MAX_TRIES; n++) {
        snprintf(w->temporary, sizeof w->temporary, "%.*s.%.*s.tmp-%ld-%d", (int)w->folder,
                 w->target, (int)NAME_KEPT, w->target + w->folder, (long)getpid(), n);
        AGAIN(file, w->system->open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (file >= 0 || errno != EEXIST)
            break;
    }
    return file;
}

static bool write_all(const writer *w, int file, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t put;
        AGAIN(put, w->system->write(file, bytes, length));
        if (put == 0)
            errno = EIO;
        if (put <= 0)
            return failed(w, "cannot write");
        bytes += put;
        length -= (size_t)put;
    }
    return true;
}

/* The temporary's bytes on the disk, and the temporary closed, whatever happens. An fsync that failed is not
 * tried again: the system may have dropped the bytes, and a second fsync would not know of them. */
static bool fill_temporary(const writer *w, int file, const void *bytes, size_t length)
{
    bool ok = true;
    int result = 0;
    if (w->exists)
        AGAIN(result, w->system->fchmod(file, w->mode));
    if (result != 0)
        ok = failed(w, "cannot set the mode of the new file");
    ok = ok && write_all(w, file, bytes, length);
    if (ok)
        AGAIN(result, w->system->fsync(file));
    if (ok && result != 0)
        ok = failed(w, "the new file did not reach the disk (fsync)");
    if (w->system->close(file) != 0 && errno != EINTR && ok)
        ok = failed(w, "cannot close the new file");
    return ok;
}

static bool replace(writer *w, int folder, const void *bytes, size_t length)
{
    const int file = open_temporary(w);
    if (file < 0)
        return failed(w, "cannot make a file in its folder");
    bool ok = fill_temporary(w, file, bytes, length);
    int result = 0;
    if (ok)
        AGAIN(result, w->system->rename(w->temporary, w->target));
    if (result != 0)
        ok = failed(w, "cannot rename the new file to its place");
    if (!ok) {
        w->system->unlink(w->temporary);
        return false;
    }
    AGAIN(result, w->system->fsync(folder));
    /* some file systems have no fsync of folders and say EINVAL */
    if (result != 0 && errno != EINVAL)
        return failed(w, "the new file is in place, but a power cut may undo that (fsync of the "
                         "folder)");
    return true;
}

bool fvi_write_file_by(const fvi_system *system, const char *path, const void *bytes, size_t length,
                       fv_error *error)
{
    writer w = {.system = system, .path = path, .error = error};
    if (!find_target(&w))
        return false;
    const int folder = open_folder(&w);
    if (folder < 0)
        return failed(&w, "cannot open its folder");
    const bool ok = replace(&w, folder, bytes, length);
    system->close(folder);
    return ok;
}

bool fvi_write_file(const char *path, const void *bytes, size_t length, fv_error *error)
{
    return fvi_write_file_by(&fvi_system_real, path, bytes, length, error);
}

bool fvi_can_write_file(const char *path, fv_error *error)
{
    writer w = {.system = &fvi_system_real, .path = path, .error = error};
    if (!find_target(&w))
        return false;
    const int file = open_temporary(&w);
    if (file < 0)
        return failed(&w, "cannot make a file in its folder");
    w.system->close(file);
    w.system->unlink(w.temporary);
    return true;
}
