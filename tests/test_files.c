/* Reading whole files, and replacing them so that the old or the new one is there whatever call fails. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory.h"
#include "train/files/files.h"

/* ---- a folder of its own for every test -------------------------------------------------------------- */

static char folder[] = "/tmp/fovea-files-XXXXXX";
static char path[64];

static void start(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
}

/* Files in the folder, hidden ones too. */
static int files(void)
{
    int count = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

static void clear(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(folder);
}

TestSuite(files, .init = start, .fini = clear);

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

static bool holds(const char *text)
{
    size_t length;
    char *bytes = fvi_read_file(path, &length, NULL, FV_DATA);
    const bool same = bytes != NULL && length == strlen(text) && memcmp(bytes, text, length) == 0;
    fvi_free(bytes);
    return same;
}

static void refused(const fv_error *error, fv_status status, const char *name, const char *why)
{
    cr_assert_eq(error->status, status, "%s", error->text);
    cr_assert_eq(strncmp(error->text, name, strlen(name)), 0, "%s", error->text);
    cr_assert_not_null(strstr(error->text, why), "%s", error->text);
}

/* ---- reading ----------------------------------------------------------------------------------------- */

Test(files, read_whole)
{
    static const char *const texts[] = {"", "a", "two\nlines"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = 99;
        put(texts[i]);
        char *bytes = fvi_read_file(path, &length, NULL, FV_DATA);
        cr_assert_eq(length, strlen(texts[i]));
        cr_assert_str_eq(bytes, texts[i], "with a NUL behind");
        fvi_free(bytes);
    }
}

static void read_refused(char *(*read_it)(const char *, size_t *, fv_error *, fv_status),
                         const char *name, const char *why)
{
    fv_error error = {0};
    size_t length = 99;
    cr_assert_null(read_it(name, &length, &error, FV_CHECKPOINT));
    cr_assert_eq(length, 0);
    refused(&error, FV_CHECKPOINT, name, why);
}

Test(files, read_refuses)
{
    read_refused(fvi_read_file, path, "cannot open: No such file or directory");
    read_refused(fvi_read_regular, path, "cannot open: No such file or directory");
    read_refused(fvi_read_file, folder, "is a directory, expected a file");
    read_refused(fvi_read_regular, folder, "is a directory, expected a file");
    read_refused(fvi_read_regular, "/dev/null", "is a pipe or a device, expected a regular file");
    read_refused(fvi_read_regular, "-", "cannot open");
    put("");
    read_refused(fvi_read_regular, path, "the file is empty");
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    read_refused(fvi_read_regular, path, "is a pipe or a device, expected a regular file");
    unlink(path);
    put("");
    cr_assert_eq(truncate(path, (off_t)FVI_FILE_MAX + 1), 0, "a file of holes");
    read_refused(fvi_read_file, path, "4294967296 bytes, the most that is read is 4294967295");
    if (geteuid() != 0) {
        chmod(path, 0);
        read_refused(fvi_read_file, path, "cannot open: Permission denied");
    }
}

Test(files, read_a_pipe_as_standard_input)
{
    enum { LENGTH = 100000 }; /* more than a pipe holds */
    int ends[2];
    size_t length;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < LENGTH; i++) {
            const char c = (char)('a' + i % 26);
            if (write(ends[1], &c, 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    char *bytes = fvi_read_file("-", &length, NULL, FV_DATA);
    cr_assert_eq(length, LENGTH);
    for (size_t i = 0; i < LENGTH; i++)
        cr_assert_eq(bytes[i], (char)('a' + i % 26));
    fvi_free(bytes);
    waitpid(child, NULL, 0);
}

Test(files, read_without_memory)
{
    const size_t blocks = test_blocks();
    put("some text");
    for (size_t n = 1;; n++) {
        fv_error error = {0};
        size_t length;
        test_fail_after(n);
        char *bytes = fvi_read_file(path, &length, &error, FV_DATA);
        test_fail_after(0);
        fvi_free(bytes);
        cr_assert_eq(test_blocks(), blocks);
        if (bytes != NULL) {
            cr_assert_gt(n, 1);
            return;
        }
        refused(&error, FV_FAILED, path, "out of memory");
    }
}

/* ---- writing ----------------------------------------------------------------------------------------- */

static mode_t mode_of(const char *name)
{
    struct stat about;
    cr_assert_eq(lstat(name, &about), 0);
    return about.st_mode & 07777;
}

Test(files, write_replaces)
{
    umask(027);
    cr_assert(fvi_write_file(path, "first", 5, NULL));
    cr_assert(holds("first"));
    cr_assert_eq(mode_of(path), 0640, "by the umask");
    chmod(path, 0604);
    cr_assert(fvi_write_file(path, "the second", 10, NULL));
    cr_assert(holds("the second"));
    cr_assert_eq(mode_of(path), 0604, "kept");
    cr_assert(fvi_write_file(path, NULL, 0, NULL));
    cr_assert(holds(""));
    cr_assert_eq(files(), 1);
}

Test(files, write_in_the_current_folder)
{
    cr_assert_eq(chdir(folder), 0);
    cr_assert(fvi_write_file("file", "here", 4, NULL));
    cr_assert(holds("here"));
    cr_assert_eq(files(), 1);
}

Test(files, write_through_links)
{
    char link[64], target[64];
    struct stat about;
    snprintf(link, sizeof link, "%s/link", folder);
    put("old");
    cr_assert_eq(symlink("file", link), 0);
    cr_assert(fvi_write_file(link, "new", 3, NULL));
    cr_assert(holds("new"));
    cr_assert_eq(lstat(link, &about), 0);
    cr_assert(S_ISLNK(about.st_mode));
    unlink(path);
    cr_assert(fvi_write_file(link, "text", 4, NULL), "a link to nowhere is replaced");
    cr_assert_eq(readlink(link, target, sizeof target), -1);
    cr_assert_eq(files(), 1);
}

Test(files, write_the_longest_name)
{
    char name[300];
    snprintf(name, sizeof name, "%s/%0255d", folder, 7);
    cr_assert(fvi_write_file(name, "x", 1, NULL));
    cr_assert_eq(files(), 1);
}

static void write_refused(const char *name, const char *why)
{
    fv_error error = {0};
    cr_assert_not(fvi_write_file(name, "x", 1, &error));
    refused(&error, FV_DISK, name, why);
}

Test(files, write_refuses)
{
    char name[6000];
    write_refused(folder, "is a directory, expected a regular file or none");
    write_refused("/dev/null", "is a pipe or a device, expected a regular file or none");
    write_refused("", "a file name is expected");
    snprintf(name, sizeof name, "%s/", folder);
    write_refused(name, "a file name is expected");
    snprintf(name, sizeof name, "%s/none/file", folder);
    write_refused(name, "cannot open its folder: No such file or directory");
    snprintf(name, sizeof name, "%s/%0256d", folder, 7);
    write_refused(name, "File name too long");
    snprintf(name, 800, "%s/%0600d", folder, 7);
    write_refused(name, "File name too long");
    put("");
    snprintf(name, sizeof name, "%s/file/file", folder);
    write_refused(name, "Not a directory");
    cr_assert_eq(files(), 1);
    cr_assert(fvi_write_file("/dev/null", "", 0, NULL) == false, "no error to fill is fine");
}

/* ---- calls that fail ---------------------------------------------------------------------------------- */

typedef enum { FAIL, FAIL_FROM_HERE, INTERRUPT, SHORT } trouble;
static trouble kind;
static int calls, at, code;

/* Whether this call meets the trouble; unlink is spared when everything fails, for who can clean up then? */
static bool struck(void)
{
    calls++;
    if (kind == FAIL_FROM_HERE ? calls < at : calls != at)
        return false;
    errno = kind == INTERRUPT ? EINTR : code;
    return true;
}

static int try_open(const char *name, int flags, mode_t mode)
{
    return struck() ? -1 : fvi_system_real.open(name, flags, mode);
}

static int try_fchmod(int file, mode_t mode)
{
    return struck() ? -1 : fchmod(file, mode);
}

static ssize_t try_write(int file, const void *bytes, size_t length)
{
    const bool now = struck();
    if (now && kind == SHORT)
        return write(file, bytes, (length + 1) / 2);
    if (now && kind == FAIL)
        (void)!write(file, bytes, length / 2);
    return now ? -1 : write(file, bytes, length);
}

static int try_fsync(int file)
{
    return struck() ? -1 : fsync(file);
}

static int try_close(int file)
{
    const bool now = struck();
    const int saved = errno, result = close(file); /* whatever it says, the file is closed */
    errno = saved;
    return now ? -1 : result;
}

static int try_rename(const char *from, const char *to)
{
    return struck() ? -1 : rename(from, to);
}

static const fvi_system troubled = {try_open,  try_fchmod, try_write, try_fsync,
                                    try_close, try_rename, unlink};

/* Runs one write after another, each meeting the trouble one call later, until one meets none. Returns how
 * many failed. */
static int every_call(trouble what, int error_code, bool exists)
{
    int failures = 0;
    kind = what;
    code = error_code;
    for (at = 1;; at++) {
        fv_error error = {0};
        unlink(path);
        if (exists)
            put("the old one");
        calls = 0;
        const bool ok = fvi_write_file_by(&troubled, path, "the new one!", 12, &error);
        const bool met = calls >= at, placed = strstr(error.text, "is in place") != NULL;
        cr_assert_eq(ok, error.status == FV_OK, "%s", error.text);
        cr_assert(ok || error.status == FV_DISK, "%s", error.text);
        cr_assert_eq(files(), ok || placed || exists, "call %d leaves a temporary", at);
        if (ok || placed || exists)
            cr_assert(holds(ok || placed ? "the new one!" : "the old one"), "call %d", at);
        failures += !ok;
        if (!met)
            return failures;
    }
}

/* open, open, (fchmod), write, fsync, close, rename, fsync; the folder's close may fail. */
Test(files, write_when_one_call_fails)
{
    static const int codes[] = {ENOSPC, EIO, EDQUOT, EACCES};
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(every_call(FAIL, codes[i], false), 7);
        cr_assert_eq(every_call(FAIL, codes[i], true), 8);
        cr_assert_eq(every_call(FAIL_FROM_HERE, codes[i], true), 8);
    }
    cr_assert_eq(every_call(FAIL, EINVAL, true), 7, "a folder without fsync");
}

Test(files, write_when_interrupted)
{
    cr_assert_eq(every_call(INTERRUPT, 0, false), 0);
    cr_assert_eq(every_call(INTERRUPT, 0, true), 0);
}

Test(files, write_in_pieces)
{
    kind = SHORT;
    at = 3; /* behind two opens */
    cr_assert(fvi_write_file_by(&troubled, path, "the new one!", 12, NULL));
    cr_assert(holds("the new one!"));
    cr_assert_eq(calls, 9, "one write more");
}

static ssize_t write_nothing(int file, const void *bytes, size_t length)
{
    (void)file, (void)bytes, (void)length;
    return 0;
}

Test(files, write_that_takes_nothing)
{
    fvi_system system = fvi_system_real;
    fv_error error = {0};
    system.write = write_nothing;
    cr_assert_not(fvi_write_file_by(&system, path, "x", 1, &error));
    refused(&error, FV_DISK, path, "cannot write: Input/output error");
    cr_assert_eq(files(), 0);
}

static int syncs;

static int fail_sync(int file)
{
    (void)file;
    syncs++;
    errno = EIO;
    return -1;
}

Test(files, a_failed_fsync_is_not_retried)
{
    fvi_system system = fvi_system_real;
    fv_error error = {0};
    system.fsync = fail_sync;
    put("old");
    cr_assert_not(fvi_write_file_by(&system, path, "new", 3, &error));
    refused(&error, FV_DISK, path,
            "the new file did not reach the disk (fsync): Input/output error");
    cr_assert_eq(syncs, 1);
    cr_assert(holds("old"));
    cr_assert_eq(files(), 1);
}

Test(files, leftovers_of_a_killed_process_are_no_obstacle)
{
    for (int n = 0; n < 3; n++) {
        char name[100];
        snprintf(name, sizeof name, "%s/.file.tmp-%ld-%d", folder, (long)getpid(), n);
        fclose(fopen(name, "w"));
    }
    cr_assert(fvi_write_file(path, "new", 3, NULL));
    cr_assert(holds("new"));
    cr_assert_eq(files(), 4);
}

/* ---- limits of the machine ------------------------------------------------------------------------------ */

Test(files, write_beyond_the_file_size_limit)
{
    static char bytes[10000];
    fv_error error = {0};
    put("old");
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY});
    const bool ok = fvi_write_file(path, bytes, sizeof bytes, &error);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    cr_assert_not(ok);
    refused(&error, FV_DISK, path, "cannot write: File too large");
    cr_assert(holds("old"));
    cr_assert_eq(files(), 1);
}

Test(files, write_on_a_full_disk)
{
    static char bytes[1 << 18];
    fv_error error = {0};
    if (mount("none", folder, "tmpfs", 0, "size=128k") != 0)
        cr_skip_test("mounting a small tmpfs: %s", strerror(errno));
    put("old");
    const bool ok = fvi_write_file(path, bytes, sizeof bytes, &error), old = holds("old");
    const int count = files();
    umount(folder);
    cr_assert_not(ok);
    refused(&error, FV_DISK, path, "cannot write: No space left on device");
    cr_assert(old);
    cr_assert_eq(count, 1);
}
