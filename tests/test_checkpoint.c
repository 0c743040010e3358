/* Checkpoints: exact round trips, every damage refused, and old or new whatever happens while saving. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "train/files/checkpoint.h"

static char folder[] = "/tmp/fovea-checkpoint-XXXXXX";
static char path[64];

static void start(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.npz", folder);
}

static int files(bool remove_them)
{
    int count = -2; /* "." and ".." */
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL; count++)
        if (remove_them)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return count;
}

static void clear(void)
{
    files(true);
    rmdir(folder);
}

TestSuite(checkpoint, .init = start, .fini = clear);

/* ---- a small model --------------------------------------------------------------------------------------- */

typedef struct {
    fv_params *params;
    fv_optimizer *optimizer;
} model;

/* Every number of parameters and state is another one, and all change with start. */
static void fill(model m, double first)
{
    double next = first;
    for (size_t i = 0; i < fv_params_count(m.params); i++) {
        const fv_param *p = fv_params_at(m.params, i);
        for (int s = -1; s < (m.optimizer ? fv_optimizer_slots(m.optimizer) : 0); s++) {
            fv_tensor x = s < 0 ? p->value : fv_optimizer_slot(m.optimizer, s, p);
            for (size_t k = 0; k < fv_shape_count(x.shape); k++)
                x.data[k] = (fv_real)(next += 0.375);
        }
    }
    if (m.optimizer)
        fv_optimizer_set_steps(m.optimizer, (uint64_t)first);
}

static bool holds(model m, double first)
{
    double next = first;
    for (size_t i = 0; i < fv_params_count(m.params); i++) {
        const fv_param *p = fv_params_at(m.params, i);
        for (int s = -1; s < (m.optimizer ? fv_optimizer_slots(m.optimizer) : 0); s++) {
            fv_tensor x = s < 0 ? p->value : fv_optimizer_slot(m.optimizer, s, p);
            for (size_t k = 0; k < fv_shape_count(x.shape); k++)
                if ((double)fv_re(x.data[k]) != (next += 0.375))
                    return false;
        }
    }
    return m.optimizer == NULL || fv_optimizer_steps(m.optimizer) == (uint64_t)first;
}

static fv_param *add(fv_params *params, const char *name, fv_shape shape)
{
    return fv_param_new(fv_root(params), name, shape, (fv_init){FV_ZEROS, 0});
}

/* Named and shaped like the arrays of tools/make_checkpoint_fixtures.py. */
static model new_model(fv_optimizer_kind kind)
{
    model m = {.params = fv_params_new(1)};
    add(m.params, "head.weight", FV_SHAPE(2, 3));
    add(m.params, "head.bias", FV_SHAPE(2));
    add(m.params, "scale", FV_SCALAR);
    m.optimizer = fv_optimizer_new(m.params, &(fv_optimizer_opts){.kind = kind}, NULL);
    cr_assert_not_null(m.optimizer);
    return m;
}

static void free_model(model m)
{
    fv_optimizer_free(m.optimizer);
    fv_params_free(m.params);
}

static void refused(const fv_error *error, fv_status status, const char *why)
{
    char expected[300];
    snprintf(expected, sizeof expected, "%s: %s", path, why);
    cr_assert_eq(error->status, status, "%s", error->text);
    cr_assert_str_eq(error->text, expected);
}

/* ---- round trips ------------------------------------------------------------------------------------------ */

Test(checkpoint, round_trip)
{
    static const char json[] = "{\"step\": 12, \"words\": [\"na\xc3\xafve\", \"\\u0001\"]}";
    fv_error error = {0};
    model a = new_model(FV_ADAMW), b = new_model(FV_ADAMW);
    size_t length, again;
    fill(a, 12);
    cr_assert(fv_checkpoint_save(path, a.params, a.optimizer, json, &error), "%s", error.text);
    char *bytes = fvi_read_file(path, &length, &error, FV_DATA);
    fv_checkpoint *c = fv_checkpoint_open(path, &error);
    cr_assert_not_null(c, "%s", error.text);
    cr_assert_str_eq(fv_checkpoint_json(c), json);
    cr_assert(fv_checkpoint_restore(c, b.params, b.optimizer, &error), "%s", error.text);
    fv_checkpoint_close(c);
    cr_assert(holds(b, 12));

    cr_assert(fv_checkpoint_save(path, b.params, b.optimizer, json, &error));
    char *same = fvi_read_file(path, &again, &error, FV_DATA);
    cr_assert_eq(again, length, "equal contents");
    cr_assert_arr_eq(same, bytes, length, "equal bytes");
    cr_assert_eq(files(false), 1);
    fvi_free(bytes);
    fvi_free(same);
    free_model(a);
    free_model(b);
}

Test(checkpoint, parameters_alone)
{
    fv_error error = {0};
    model m = new_model(FV_ADAMW);
    const model params = {.params = m.params};
    fill(params, 5);
    cr_assert(fv_checkpoint_save(path, m.params, NULL, NULL, &error), "%s", error.text);
    fv_checkpoint *c = fv_checkpoint_open(path, &error);
    cr_assert_str_eq(fv_checkpoint_json(c), "{}");
    fill(m, 0);
    cr_assert(fv_checkpoint_restore(c, m.params, NULL, &error), "%s", error.text);
    cr_assert(holds(params, 5));
    fill(m, 2);
    cr_assert_not(fv_checkpoint_restore(c, m.params, m.optimizer, &error));
    refused(&error, FV_CHECKPOINT, "holds no state of an optimiser");
    cr_assert(holds(m, 2), "nothing was changed");
    fv_checkpoint_close(c);
    free_model(m);
}

Test(checkpoint, without_the_optimiser_in_the_file)
{
    model m = new_model(FV_ADAM);
    const model params = {.params = m.params};
    fill(params, 5);
    cr_assert(fv_checkpoint_save(path, m.params, m.optimizer, "{}", NULL));
    fill(params, 6);
    fv_checkpoint *c = fv_checkpoint_open(path, NULL);
    cr_assert(fv_checkpoint_restore(c, m.params, NULL, NULL));
    cr_assert(holds(params, 5));
    fv_checkpoint_close(c);
    free_model(m);
}

Test(checkpoint, large_and_special_numbers)
{
    enum { COUNT = 300000 };
    static const double special[] = {0.0, -0.0, 1e-40, -3.4e38, 1.0 / 3};
    fv_params *params = fv_params_new(1);
    fv_param *p = add(params, "table", FV_SHAPE(COUNT / 3, 3));
    static fv_real kept[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        kept[i] = p->value.data[i] = i % 7 < 5
                                         ? (fv_real)special[i % 7]
                                         : (fv_real)fv_rng_normal(fv_rng_make(1, 2, "numbers"), i);
    cr_assert(fv_checkpoint_save(path, params, NULL, "{}", NULL));
    memset(p->value.data, 0, sizeof kept);
    fv_checkpoint *c = fv_checkpoint_open(path, NULL);
    cr_assert(fv_checkpoint_restore(c, params, NULL, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        const double a = fv_re(kept[i]), b = fv_re(p->value.data[i]);
        cr_assert_arr_eq(&a, &b, sizeof a, "bit for bit");
    }
    fv_checkpoint_close(c);
    fv_params_free(params);
}

/* What numpy.load read and numpy.savez wrote again, in both widths, whatever this build's is. */
static void read_numpy(const char *name)
{
    static const double weight[] = {-0.5, -0.25, 0, 0.25, 0.5, 0.75};
    fv_error error = {0};
    model m = new_model(FV_ADAMW);
    if (access(name, R_OK) != 0)
        cr_skip_test("%s: not found from this folder", name);
    fv_checkpoint *c = fv_checkpoint_open(name, &error);
    cr_assert_not_null(c, "%s", error.text);
    cr_assert_str_eq(fv_checkpoint_json(c), "{\"epoch\": 3}");
    cr_assert(fv_checkpoint_restore(c, m.params, m.optimizer, &error), "%s", error.text);
    fv_checkpoint_close(c);
    const fv_param *p = fv_params_find(m.params, "head.weight");
    for (size_t i = 0; i < 6; i++) {
        cr_assert_eq(fv_re(p->value.data[i]), weight[i]);
        cr_assert_eq(fv_re(fv_optimizer_slot(m.optimizer, 0, p).data[i]), 0.125);
        cr_assert_eq(fv_re(fv_optimizer_slot(m.optimizer, 1, p).data[i]), 2);
    }
    p = fv_params_find(m.params, "head.bias");
    cr_assert_eq(fv_re(p->value.data[0]), 1.5);
    cr_assert_eq(fv_re(p->value.data[1]), -2);
    p = fv_params_find(m.params, "scale");
    cr_assert_eq(fv_re(p->value.data[0]), 0.25);
    cr_assert_eq(fv_re(fv_optimizer_slot(m.optimizer, 0, p).data[0]), -1);
    cr_assert_eq(fv_re(fv_optimizer_slot(m.optimizer, 1, p).data[0]), 3);
    cr_assert_eq(fv_optimizer_steps(m.optimizer), 7);
    free_model(m);
}

Test(checkpoint, numpy)
{
    read_numpy("tests/data/numpy.npz");
    read_numpy("tests/data/numpy_compressed.npz");
}

/* ---- what is refused -------------------------------------------------------------------------------------- */

/* A file of one model against another model, which must stay as it is. */
static void mismatch(const char *name, fv_shape shape, bool optimizer, const char *why)
{
    fv_error error = {0};
    model m = new_model(FV_ADAMW), other = {.params = fv_params_new(1)};
    add(other.params, "head.weight", FV_SHAPE(2, 3));
    add(other.params, "head.bias", FV_SHAPE(2));
    if (name != NULL)
        add(other.params, name, shape);
    cr_assert(fv_checkpoint_save(path, m.params, m.optimizer, "{}", NULL));
    fill(other, 3);
    fv_checkpoint *c = fv_checkpoint_open(path, NULL);
    other.optimizer = optimizer ? fv_optimizer_new(other.params, NULL, NULL) : NULL;
    fill(other, 3);
    cr_assert_not(fv_checkpoint_restore(c, other.params, other.optimizer, &error));
    refused(&error, FV_CHECKPOINT, why);
    cr_assert(holds(other, 3), "nothing was changed");
    fv_checkpoint_close(c);
    free_model(m);
    free_model(other);
}

Test(checkpoint, another_model)
{
    for (int optimizer = 0; optimizer < 2; optimizer++) {
        mismatch("scale", FV_SHAPE(1), optimizer, "scale: shape [] in the file, [1] in the model");
        mismatch("scales", FV_SHAPE(4, 2), optimizer,
                 "scales: missing in the file, shape [4, 2] in the model");
        mismatch("optimizer/steps", FV_SCALAR, optimizer, /* in the file, but no parameter */
                 "optimizer/steps: missing in the file, shape [] in the model");
        mismatch(NULL, FV_SCALAR, optimizer, "scale: shape [] in the file, none in the model");
    }
}

Test(checkpoint, another_optimiser)
{
    fv_error error = {0};
    model adam = new_model(FV_ADAM), sgd = new_model(FV_SGD);
    cr_assert(fv_checkpoint_save(path, adam.params, adam.optimizer, "{}", NULL));
    fv_checkpoint *c = fv_checkpoint_open(path, NULL);
    fill(sgd, 3);
    cr_assert_not(fv_checkpoint_restore(c, sgd.params, sgd.optimizer, &error));
    refused(&error, FV_CHECKPOINT,
            "optimizer/exp_avg/head.bias: shape [2] in the file, none in the model");
    fv_checkpoint_close(c);
    cr_assert(fv_checkpoint_save(path, sgd.params, sgd.optimizer, "{}", NULL));
    c = fv_checkpoint_open(path, NULL);
    fill(adam, 3);
    error = (fv_error){0};
    cr_assert_not(fv_checkpoint_restore(c, adam.params, adam.optimizer, &error));
    refused(&error, FV_CHECKPOINT,
            "optimizer/exp_avg/head.weight: missing in the file, shape [2, 3] in the model");
    cr_assert(holds(adam, 3) && holds(sgd, 3));
    fv_checkpoint_close(c);
    free_model(adam);
    free_model(sgd);
}

Test(checkpoint, what_cannot_be_saved)
{
    static const char *const json[] = {"[1]", "", "{", "{\"a\": 1, \"a\": 2}", "3"};
    static const char *const names[] = {"optimizer/steps", "meta.json", "a/../b", "/a"};
    char name[1200];
    fv_error error;
    fv_params *params = fv_params_new(1);
    for (size_t i = 0; i < 5; i++) {
        error = (fv_error){0};
        cr_assert_not(fv_checkpoint_save(path, params, NULL, json[i], &error));
        cr_assert_eq(error.status, FV_USAGE, "%s", error.text);
        cr_assert_not_null(strstr(error.text, "model.npz: meta.json: "), "%s", error.text);
    }
    fv_params_free(params);
    snprintf(name, sizeof name, "%01100d", 1);
    for (size_t i = 0; i < 5; i++) {
        params = fv_params_new(1);
        error = (fv_error){0};
        add(params, i < 4 ? names[i] : name, FV_SHAPE(1));
        cr_assert_not(fv_checkpoint_save(path, params, NULL, "{}", &error));
        cr_assert_eq(error.status, FV_USAGE, "%s", error.text);
        fv_params_free(params);
    }
    cr_assert_eq(files(false), 0);
}

/* Members that a checkpoint does not have, or not like this. */
Test(checkpoint, archives_of_something_else)
{
    static const struct {
        const char *name, *bytes, *why;
    } cases[] = {
        {"readme.txt", "hello", "readme.txt: expected arrays (.npy) and meta.json only"},
        {".npy", "hello", ".npy: expected arrays (.npy) and meta.json only"},
        {"a.npy", "hello", "a.npy: not an .npy array of version 1.0"},
        {"meta.json", "[1]", "meta.json: not a JSON object"},
        {"meta.json", "{\n\"a\"}", "meta.json: line 2, column 4: ':' expected near '}'"},
        {"a.npy", NULL, "a.npy: expected an array of '<f4' or '<f8'"},
        {"meta.json.npy", NULL, "meta.json.npy: expected one text of bytes"},
        {"optimizer/steps.npy", "", "optimizer/steps.npy: expected one '<u8'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_error error = {0};
        fvi_zip_writer w = {.path = path};
        fvi_bytes npy = {0};
        if (cases[i].bytes == NULL)
            cr_assert(fvi_npy_write_u64(&npy, 7));
        else if (*cases[i].bytes == 0)
            cr_assert(fvi_npy_write(&npy, (fv_tensor){FV_SHAPE(1), (fv_real[]){1}}));
        const void *bytes = npy.at != NULL ? (const void *)npy.at : cases[i].bytes;
        const size_t length = npy.at != NULL ? npy.length : strlen(cases[i].bytes);
        cr_assert(fvi_zip_add(&w, cases[i].name, bytes, length, FVI_TEXT) && fvi_zip_end(&w));
        cr_assert_null(fvi_checkpoint_parse(path, w.file.at, w.file.length, &error));
        refused(&error, FV_CHECKPOINT, cases[i].why);
        fvi_zip_writer_free(&w);
        fvi_bytes_free(&npy);
    }
}

Test(checkpoint, no_such_file)
{
    fv_error error = {0};
    cr_assert_null(fv_checkpoint_open(path, &error));
    refused(&error, FV_CHECKPOINT, "cannot open: No such file or directory");
    cr_assert_null(fv_checkpoint_open(path, NULL));
    fv_checkpoint_close(NULL);
}

/* ---- damage ------------------------------------------------------------------------------------------------ */

/* A small checkpoint with a stored and a deflated member of each sort. */
static unsigned char *small(size_t *length)
{
    model m = new_model(FV_ADAMW);
    fill(m, 12);
    cr_assert(fv_checkpoint_save(path, m.params, m.optimizer, "{\"epoch\": 3}", NULL));
    free_model(m);
    return (unsigned char *)fvi_read_file(path, length, NULL, FV_DATA);
}

static void damaged(const unsigned char *bytes, size_t length, const char *how, size_t where)
{
    fv_error error = {0};
    fv_checkpoint *c = fvi_checkpoint_parse("model.npz", bytes, length, &error);
    cr_assert_null(c, "%s %zu is not noticed", how, where);
    cr_assert_eq(error.status, FV_CHECKPOINT, "%s", error.text);
    cr_assert_eq(strncmp(error.text, "model.npz: ", 11), 0, "%s", error.text);
}

Test(checkpoint, every_truncation)
{
    size_t length;
    unsigned char *bytes = small(&length);
    const size_t blocks = test_blocks();
    for (size_t cut = 0; cut < length; cut++) {
        unsigned char *exact = malloc(cut + 1); /* so that a sanitizer sees a read beyond the end */
        memcpy(exact + 1, bytes, cut);
        damaged(exact + 1, cut, "cut at", cut);
        free(exact);
    }
    cr_assert_eq(test_blocks(), blocks);
    fvi_free(bytes);
}

Test(checkpoint, every_flipped_bit)
{
    size_t length;
    unsigned char *bytes = small(&length);
    const size_t blocks = test_blocks();
    for (size_t bit = 0; bit < length * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        damaged(bytes, length, "bit", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    cr_assert_eq(test_blocks(), blocks);
    fvi_free(bytes);
}

/* Bytes more at the end, in front, or a stretch of zeros within. */
Test(checkpoint, other_damage)
{
    size_t length;
    unsigned char *bytes = small(&length), *longer = malloc(length + 64);
    memcpy(longer, bytes, length);
    memset(longer + length, 0, 64);
    for (size_t more = 1; more <= 64; more++)
        damaged(longer, length + more, "bytes more", more);
    memset(longer, 0, 64);
    memcpy(longer + 64, bytes, length);
    for (size_t more = 1; more <= 64; more++)
        damaged(longer + 64 - more, length + more, "bytes in front", more);
    for (size_t at = 0; at + 64 <= length; at += 16) {
        memcpy(longer, bytes, length);
        memset(longer + at, 0, 64);
        damaged(longer, length, "zeros at", at);
    }
    free(longer);
    fvi_free(bytes);
}

Test(checkpoint, damage_is_named)
{
    fv_error error = {0};
    size_t length;
    unsigned char *bytes = small(&length);
    for (size_t i = 0; i + 8 < length; i++)
        if (memcmp(bytes + i, "{\"epoch", 7) == 0)
            bytes[i + 1] ^= 1;
    cr_assert(fvi_write_file(path, bytes, length, NULL));
    cr_assert_null(fv_checkpoint_open(path, &error));
    refused(&error, FV_CHECKPOINT, "meta.json: checksum differs (damaged file)");
    fvi_free(bytes);
}

/* ---- memory that is out ------------------------------------------------------------------------------------- */

Test(checkpoint, without_memory)
{
    model m = new_model(FV_ADAMW);
    const size_t blocks = test_blocks();
    fill(m, 1);
    cr_assert(fv_checkpoint_save(path, m.params, m.optimizer, "{}", NULL));
    for (int saving = 0; saving < 2; saving++)
        for (size_t n = 1;; n++) {
            fv_error error = {0};
            fv_checkpoint *c = NULL;
            test_fail_after(n);
            const bool ok = saving ? fv_checkpoint_save(path, m.params, m.optimizer, "{}", &error)
                                   : (c = fv_checkpoint_open(path, &error)) != NULL;
            test_fail_after(0);
            fv_checkpoint_close(c);
            cr_assert_eq(test_blocks(), blocks, "allocation %zu", n);
            cr_assert_eq(error.status, ok ? FV_OK : FV_FAILED, "%s", error.text);
            cr_assert_eq(files(false), 1);
            if (ok) {
                cr_assert_gt(n, 15);
                break;
            }
        }
    fv_checkpoint *c = fv_checkpoint_open(path, NULL);
    const size_t requests = test_requests();
    cr_assert(fv_checkpoint_restore(c, m.params, m.optimizer, NULL));
    cr_assert_eq(test_requests(), requests, "restoring takes none");
    fv_checkpoint_close(c);
    free_model(m);
}

/* ---- calls that fail, processes that die ---------------------------------------------------------------------- */

/* The number that the model in the file was filled with; 0 when its numbers are not of one piece. */
static int version(model m)
{
    fv_error error = {0};
    fv_checkpoint *c = fv_checkpoint_open(path, &error);
    cr_assert_not_null(c, "%s", error.text);
    cr_assert(fv_checkpoint_restore(c, m.params, m.optimizer, &error), "%s", error.text);
    fv_checkpoint_close(c);
    const int first = (int)fv_optimizer_steps(m.optimizer);
    return holds(m, first) ? first : 0;
}

static int calls, at;

static bool struck(void)
{
    errno = EIO;
    return ++calls == at;
}

static ssize_t try_write(int file, const void *bytes, size_t length)
{
    const bool now = struck();
    const ssize_t put = write(file, bytes, length > 700 ? 700 : length); /* in several pieces */
    errno = ENOSPC;
    return now ? -1 : put;
}

static int try_fsync(int file)
{
    return struck() ? -1 : fsync(file);
}

static int try_rename(const char *from, const char *to)
{
    return struck() ? -1 : rename(from, to);
}

Test(checkpoint, save_when_one_call_fails)
{
    model m = new_model(FV_ADAMW);
    fvi_system system = fvi_system_real;
    system.write = try_write;
    system.fsync = try_fsync;
    system.rename = try_rename;
    for (at = 1;; at++) {
        fv_error error = {0};
        fill(m, 1);
        cr_assert(fv_checkpoint_save(path, m.params, m.optimizer, "{}", NULL));
        fill(m, 2);
        calls = 0;
        const bool ok = fvi_checkpoint_save_by(&system, path, m.params, m.optimizer, "{}", &error);
        const bool placed = strstr(error.text, "is in place") != NULL;
        cr_assert_eq(error.status, ok ? FV_OK : FV_DISK, "%s", error.text);
        cr_assert_eq(version(m), ok || placed ? 2 : 1, "call %d", at);
        cr_assert_eq(files(false), 1, "call %d leaves a temporary", at);
        if (ok)
            break;
    }
    cr_assert_gt(at, 5);
    free_model(m);
}

/* The child saves one version after another and says so when the first is there. */
static void save_for_ever(model m, int first, int told)
{
    for (int v = first;; v++) {
        fill(m, v);
        if (!fv_checkpoint_save(path, m.params, m.optimizer, "{}", NULL) ||
            (v == first && write(told, "", 1) != 1))
            _exit(1);
    }
}

Test(checkpoint, old_or_new_when_killed)
{
    model m = new_model(FV_ADAMW);
    for (uint64_t round = 0, last = 0; round < 50; round++) {
        int ends[2], status;
        char c;
        cr_assert_eq(pipe(ends), 0);
        const pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0)
            save_for_ever(m, (int)last + 1, ends[1]);
        close(ends[1]);
        cr_assert_eq(read(ends[0], &c, 1), 1);
        const uint32_t wait = fv_rng_below(fv_rng_make(3, 0, "kill"), round, 4000);
        nanosleep(&(struct timespec){0, (long)wait * 1000}, NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        close(ends[0]);
        cr_assert(WIFSIGNALED(status), "saving failed");
        const int v = version(m);
        cr_assert_gt(v, (int)last);
        last = (uint64_t)v;
    }
    free_model(m);
}
