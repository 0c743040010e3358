/* Any bytes as CoNLL-U: refused with one line, or read and written so that reading again changes nothing.
 *
 * clang -fsanitize=fuzzer,address,undefined */
#include <stdlib.h>
#include <string.h>

#include "train/train.h"

/* Ends the run: the fuzzer keeps the input. */
static void expect(bool good)
{
    if (!good)
        abort();
}

static char *written(const fv_conllu *file, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    expect(out != NULL);
    for (size_t s = 0; s < file->sentences; s++)
        expect(fv_conllu_write(out, file, s, NULL));
    fclose(out);
    return text;
}

/* Every word is inside a sentence, has ten columns and a later line than the one before. */
static void look_at_words(const fv_conllu *file)
{
    expect(file->offsets[0] == 0 && file->offsets[file->sentences] == file->words);
    for (size_t s = 0; s < file->sentences; s++)
        expect(file->offsets[s] < file->offsets[s + 1]);
    for (size_t w = 0; w < file->words; w++) {
        fv_error error = {0};
        int32_t tag, ids[FV_WORD_FEATURES];
        for (int c = 0; c < FV_CONLLU_COLUMNS; c++)
            expect(file->columns[w][c][0] != 0);
        expect(w == 0 || file->lines[w] > file->lines[w - 1]);
        expect(fv_conllu_upos(file, w, &tag, &error) == (error.status == FV_OK));
        expect(fv_word_features(file->columns[w][FV_CONLLU_FORM], 64, ids, FV_WORD_FEATURES) > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fv_error error = {0};
    fv_conllu *file = fv_conllu_parse("f", (const char *)bytes, size, &error);
    expect((file == NULL) == (error.status != FV_OK));
    if (file == NULL) {
        expect(error.status == FV_DATA && strncmp(error.text, "f:", 2) == 0);
        return 0;
    }
    look_at_words(file);
    size_t length, again_length;
    char *text = written(file, &length);
    fv_conllu *again = fv_conllu_parse("f", text, length, &error);
    expect(again != NULL);
    expect(again->sentences == file->sentences && again->words == file->words &&
           again->ranges == file->ranges && again->empty_nodes == file->empty_nodes);
    char *again_text = written(again, &again_length);
    expect(length == again_length && memcmp(text, again_text, length) == 0);
    free(text);
    free(again_text);
    fv_conllu_free(file);
    fv_conllu_free(again);
    return 0;
}
