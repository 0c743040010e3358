/* Fuzzes the reader of checkpoints: clang -fsanitize=fuzzer,address,undefined, with the library.
 *
 * The first byte chooses what the rest is: a whole file; or the contents of one member in an archive that is
 * otherwise sound, so that checksums do not keep the input from the parsers of arrays and JSON. Whatever
 * opens must restore or be refused, and what can be saved must open again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/files/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    NULL, "a.npy", "meta.json", "meta.json.npy", "optimizer/steps.npy", "optimizer/exp_avg/a.npy"};
enum { NAMES = sizeof names / sizeof *names };

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void open_and_restore(const void *bytes, size_t size)
{
    fv_error error = {0};
    fv_checkpoint *c = fvi_checkpoint_parse("file", bytes, size, &error);
    check((c != NULL) == (error.status == FV_OK));
    if (c == NULL)
        return;
    fv_params *params = fv_params_new(1);
    fv_param_new(fv_root(params), "a", FV_SHAPE(2), (fv_init){FV_ONES, 0});
    fv_optimizer *optimizer = fv_optimizer_new(params, NULL, NULL);
    (void)!fv_checkpoint_restore(c, params, NULL, &error);
    (void)!fv_checkpoint_restore(c, params, optimizer, &error);
    check(strlen(fv_checkpoint_json(c)) >= 2);
    fv_optimizer_free(optimizer);
    fv_params_free(params);
    fv_checkpoint_close(c);
}

/* An archive of that one member, which must unpack to the same bytes. */
static void wrap(const char *name, const uint8_t *data, size_t size)
{
    fvi_zip_writer w = {.path = "file"};
    unsigned char *out = malloc(size + 1);
    fvi_zip zip;
    check(fvi_zip_add(&w, name, data, size, size % 2 ? FVI_TEXT : FVI_NUMBERS) && fvi_zip_end(&w));
    check(fvi_zip_parse(&zip, "file", w.file.at, w.file.length, NULL));
    check(fvi_zip_unpack(&zip, zip.members, out, NULL) && fvi_zip_check_whole(&zip, NULL));
    check(zip.count == 1 && zip.members->length == size &&
          (size == 0 || memcmp(out, data, size) == 0));
    fvi_zip_free(&zip);
    free(out);
    open_and_restore(w.file.at, w.file.length);
    fvi_zip_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *name = names[data[0] % NAMES];
    if (name == NULL)
        open_and_restore(data + 1, size - 1);
    else
        wrap(name, data + 1, size - 1);
    return 0;
}
