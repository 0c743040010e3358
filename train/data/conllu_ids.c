/* A column of a CoNLL-U file as numbers: its vocabulary, and the id of each word. */
#include "tensor/internal.h"
#include "train/train.h"

static bool bad_column(int column, fv_error *error)
{
    return (column < 0 || column >= FV_CONLLU_COLUMNS) &&
           !fv_fail(error, FV_USAGE, "conllu: column %d of %d", column, FV_CONLLU_COLUMNS);
}

fv_vocab *fv_conllu_vocab(const fv_conllu *file, int column, size_t min_count, fv_error *error)
{
    if (file == NULL || bad_column(column, error))
        return NULL;
    fv_vocab *vocab = fv_vocab_new(error);
    bool ok = vocab != NULL;
    for (size_t w = 0; ok && w < file->words; w++)
        ok = fv_vocab_count(vocab, file->columns[w][column], error);
    if (ok && fv_vocab_freeze(vocab, min_count, 0, error))
        return vocab;
    fv_vocab_free(vocab);
    return NULL;
}

int32_t *fv_conllu_ids(const fv_conllu *file, int column, const fv_vocab *vocab, fv_error *error)
{
    if (file == NULL || vocab == NULL || bad_column(column, error))
        return NULL;
    int32_t *ids = fvi_calloc(file->words + 1, sizeof *ids);
    if (ids == NULL)
        fv_fail(error, FV_FAILED, "%s: out of memory for %zu words", file->path, file->words);
    for (size_t w = 0; ids != NULL && w < file->words; w++)
        ids[w] = fv_vocab_id(vocab, file->columns[w][column]);
    return ids;
}
