/* Files that are read whole and checked, and written so that a reader sees the old or the new one. */
#ifndef FVI_FILES_H
#define FVI_FILES_H

#include <sys/types.h>

#include "tensor/internal.h"

/* ---- whole files --------------------------------------------------------------------------------- */

/* The longest file that is read or written: what a zip without 64-bit extensions can address. */
#define FVI_FILE_MAX UINT32_MAX

/* The bytes of a file with a NUL behind them (not counted in length), to be freed with fvi_free. "-" is
 * standard input; pipes are read to their end; an empty file is fine. NULL: an error of that status,
 * "path: what is wrong", for a missing file, a directory, more than FVI_FILE_MAX bytes. */
char *fvi_read_file(const char *path, size_t *length, fv_error *error, fv_status status);
/* The same for what must be a regular file with something in it: no "-", no pipe, no device. */
char *fvi_read_regular(const char *path, size_t *length, fv_error *error, fv_status status);

/* Replaces the file in one step: a temporary (.name.tmp-process-number) in the same folder, fsync, rename,
 * fsync of the folder. A symbolic link is followed and stays one; an existing file keeps its mode, and
 * must be a regular one. False (FV_DISK): the old file stands and the temporary is gone; only when the
 * last fsync fails is the new file already there, which the message says. */
bool fvi_write_file(const char *path, const void *bytes, size_t length, fv_error *error);

/* Whether fvi_write_file could write there: makes and removes a temporary, leaves the file as it is. */
bool fvi_can_write_file(const char *path, fv_error *error);

/* The calls that writing makes of the machine, so that tests can make each of them fail. */
typedef struct {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*fchmod)(int file, mode_t mode);
    ssize_t (*write)(int file, const void *bytes, size_t length);
    int (*fsync)(int file);
    int (*close)(int file);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
} fvi_system;
extern const fvi_system fvi_system_real;
bool fvi_write_file_by(const fvi_system *system, const char *path, const void *bytes, size_t length,
                       fv_error *error);

/* Records "path: what: the system's words for code". Returns false. */
bool fvi_fail_system(fv_error *error, fv_status status, const char *path, const char *what,
                     int code);

#endif
