/* A part-of-speech tagger in sixty lines: run build/bin/tagger_in_60_lines in the project's folder. */
#include "fovea.h"
static struct text {
    fv_conllu *file;
    int32_t *words, *tags;
} train, dev;
static fv_embedding embedding;
static fv_block block;
static fv_linear output;
static fv_var *scores(const void *x, fv_tape *t, const size_t *sentences, size_t count)
{
    const struct text *from = x;
    const fv_ragged words = {from->file->sentences, from->file->offsets, from->words};
    const fv_segments *each = fv_pick_segments(t, words.offsets, sentences, count);
    fv_var *y = fv_embedding_forward(t, &embedding, fv_pick(t, &words, sentences, count),
                                     fv_segments_rows(each));
    y = fv_block_forward(t, &block, y, &(fv_mask){.queries = each});
    return fv_linear_forward(t, &output, y);
}
static fv_var *loss(const void *x, fv_tape *t, const size_t *sentences, size_t count, double *words)
{
    const fv_ragged tags = {train.file->sentences, train.file->offsets, train.tags};
    const int32_t *gold = fv_pick(t, &tags, sentences, count);
    return fv_cross_entropy_sum(t, scores(x, t, sentences, count), gold, NULL, words);
}
static void look_up(struct text *x, const fv_vocab *words, const fv_vocab *tags, fv_error *error)
{
    x->words = fv_conllu_ids(x->file, FV_CONLLU_FORM, words, error);
    x->tags = fv_conllu_ids(x->file, FV_CONLLU_UPOS, tags, error);
}
int main(void)
{
    fv_error error = {FV_OK, ""};
    train.file = fv_conllu_read("examples/data/tiny-train.conllu", &error);
    dev.file = fv_conllu_read("examples/data/tiny-dev.conllu", &error);
    fv_vocab *words = fv_conllu_vocab(train.file, FV_CONLLU_FORM, 2, &error);
    fv_vocab *tags = fv_conllu_vocab(train.file, FV_CONLLU_UPOS, 1, &error);
    look_up(&train, words, tags, &error);
    look_up(&dev, words, tags, &error);
    if (error.status != FV_OK)
        return fprintf(stderr, "%s\n", error.text), (int)error.status;
    const fv_scope root = fv_root(fv_params_new(1));
    const fv_block_opts near = {.dropout = 0.3,
                                .attention = {.relative_clip = 4, .relative_start = 2}};
    embedding = fv_embedding_init(fv_under(root, "embedding"), fv_vocab_size(words), 64, NULL);
    block = fv_block_init(fv_under(root, "block"), 64, 4, &near);
    output = fv_linear_init(fv_under(root, "output"), 64, fv_vocab_size(tags), NULL);
    const fv_task learn = {&train, train.file->sentences, train.file->offsets, loss, NULL, 0, NULL};
    const fv_task test = {&dev, dev.file->sentences, dev.file->offsets, NULL, scores, 0, NULL};
    static int32_t found[5000];
    size_t right = 0;
    if (!fv_fit(root.params, &learn, &(fv_fit_opts){.epochs = 20, .progress = stderr}, NULL,
                &error) ||
        !fv_predict(&test, 0, found, NULL, &error))
        return fprintf(stderr, "%s\n", error.text), (int)error.status;
    for (size_t w = 0; w < dev.file->words; w++)
        right += found[w] == dev.tags[w];
    return printf("%zu of %zu words tagged right\n", right, dev.file->words) < 0;
}
