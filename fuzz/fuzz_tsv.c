/* Any bytes as labelled texts (the first byte chooses the separator), and each text through the splitter.
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

static bool look_at_word(void *context, const char *word)
{
    size_t *left = context, length = strlen(word);
    expect(length > 0 && fv_utf8_valid(word, length, NULL));
    return --*left > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fv_error error = {0};
    if (size == 0)
        return 0;
    fv_tsv *file = fv_tsv_parse("f", (const char *)bytes + 1, size - 1, (char)bytes[0], &error);
    expect((file == NULL) == (error.status != FV_OK));
    if (file == NULL)
        return 0;
    for (size_t s = 0; s < file->samples; s++) {
        char lower[16];
        size_t words = 100;
        expect(file->label[s][0] != 0);
        expect(s == 0 || file->lines[s] == file->lines[s - 1] + 1);
        expect(fv_split_words(file->text[s], look_at_word, &words) == (words > 0));
        fv_lower(file->text[s], lower, sizeof lower);
        expect(strlen(lower) < sizeof lower && fv_utf8_valid(lower, strlen(lower), NULL));
    }
    fv_tsv_free(file);
    return 0;
}
