/* The classifier's network, its data and its checkpoint. */
#include "examples/shared/classifier.h"
#include "examples/shared/model_file.h"

#include <stdlib.h>
#include <string.h>

static const setting settings[] = {
#define AT(x) #x, offsetof(classifier_options, x)
    {AT(width), false, 64, 8192},
    {AT(heads), false, 4, 256},
    {AT(layers), false, 1, 100},
    {AT(hidden), false, 64, 65536},
    {AT(hash_rows), false, 16384, 16777216},
    {AT(min_count), false, 2, 1e9},
    {AT(longest), false, 400, 1e6},
    {AT(dropout), true, 0.3, 1},
    {AT(input_dropout), true, 0.3, 1},
    {AT(word_dropout), true, 0.1, 1},
    {AT(smoothing), true, 0.1, 1},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* ---- the network --------------------------------------------------------------------------------------- */

/* most: a file's word for sizes is believed up to so many numbers; 0: no limit. */
static bool build(classifier *m, uint64_t seed, size_t most, fv_error *error)
{
    const classifier_options *o = &m->o;
    const size_t d = (size_t)o->width;
    const fv_embedding_opts table = {.deviation = 0.1, .touched_rows = true};
    m->params = fv_params_new(seed);
    m->blocks = calloc((size_t)o->layers, sizeof *m->blocks);
    if (m->params == NULL || m->blocks == NULL)
        return fv_fail(error, FV_FAILED, "classifier: out of memory");
    fv_params_limit(m->params, most);
    const fv_scope root = fv_root(m->params);
    m->word =
        fv_embedding_init(fv_under(root, "embedding.word"), fv_vocab_size(m->words), d, &table);
    m->piece =
        fv_embedding_init(fv_under(root, "embedding.pieces"), (size_t)o->hash_rows, d, &table);
    m->place = fv_positions_init(fv_under(root, "positions"), (size_t)o->longest, d, NULL);
    const fv_block_opts block = {.hidden = (size_t)o->hidden, .dropout = o->dropout};
    for (long i = 0; i < o->layers; i++)
        m->blocks[i] =
            fv_block_init(fv_under(root, "encoder.layers.%ld", i), d, (size_t)o->heads, &block);
    m->norm = fv_norm_init(fv_under(root, "encoder.norm"), d);
    m->output = fv_linear_init(fv_under(root, "output"), d, fv_vocab_size(m->labels) - 1, NULL);
    return true;
}

typedef struct {
    fv_vocab *vocab;
    fv_error *error;
} counter;

static bool count_word(void *context, const char *word)
{
    counter *c = context;
    return fv_vocab_count(c->vocab, word, c->error);
}

bool classifier_new(classifier *m, const classifier_options *options, const fv_tsv *train,
                    uint64_t seed, fv_error *error)
{
    *m = (classifier){.o = *options};
    settings_resolve(settings, SETTINGS, &m->o);
    m->words = fv_vocab_new(error);
    m->labels = fv_vocab_new(error);
    counter c = {m->words, error};
    bool ok = m->words && m->labels;
    for (size_t i = 0; ok && i < train->samples; i++)
        ok = fv_vocab_count(m->labels, train->label[i], error) &&
             fv_split_words(train->text[i], count_word, &c);
    ok = ok && fv_vocab_freeze(m->words, (size_t)m->o.min_count, 0, error) &&
         fv_vocab_freeze(m->labels, 1, 0, error);
    if (ok && fv_vocab_size(m->labels) < 3)
        return fv_fail(error, FV_DATA, "%s: %zu labels, expected at least two", train->path,
                       fv_vocab_size(m->labels) - 1);
    return ok && build(m, seed, 0, error) && model_made(m->params, error);
}

void classifier_free(classifier *m)
{
    fv_vocab_free(m->words);
    fv_vocab_free(m->labels);
    fv_params_free(m->params);
    free(m->blocks);
    *m = (classifier){0};
}

/* Words and bags of the chosen texts, end to end. */
static fv_var *embedded(const classifier *m, fv_tape *t, const classifier_data *data,
                        const size_t *texts, size_t count, size_t words)
{
    const fv_ragged column = {data->texts, data->offsets, data->word};
    const int32_t *picked = fv_pick(t, &column, texts, count);
    int32_t *ids = fv_tape_alloc(t, words, sizeof *ids);
    size_t *bags = fv_tape_alloc(t, words + 1, sizeof *bags);
    fv_segments *pieces = fv_tape_alloc(t, 1, sizeof *pieces);
    int32_t *features = fv_tape_alloc(t, words * FV_WORD_FEATURES + 1, sizeof *features);
    if (!picked || !ids || !bags || !pieces || !features)
        return NULL;
    const fv_rng rng = fv_tape_rng(t);
    size_t at = 0, word = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t w = data->offsets[texts[s]]; w < data->offsets[texts[s] + 1]; w++, word++) {
            bool hide =
                fv_tape_mode(t) == FV_TRAIN && fv_rng_uniform(rng, word) < m->o.word_dropout;
            size_t n = hide ? 0 : data->bag_offsets[w + 1] - data->bag_offsets[w];
            ids[word] = hide ? 0 : picked[word];
            memcpy(features + at, data->bag_ids + data->bag_offsets[w], n * sizeof *features);
            at += n;
            bags[word + 1] = at;
        }
    *pieces = (fv_segments){words, bags};
    return fv_add(t, fv_embedding_forward(t, &m->word, ids, words),
                  fv_embedding_bags(t, &m->piece, features, pieces));
}

static fv_var *scores(const classifier *m, fv_tape *t, const classifier_data *data,
                      const size_t *texts, size_t count)
{
    const fv_segments *segments = fv_pick_segments(t, data->offsets, texts, count);
    if (segments == NULL)
        return NULL;
    const fv_mask mask = {.queries = segments};
    fv_var *x = embedded(m, t, data, texts, count, fv_segments_rows(segments));
    x = fv_dropout(t, fv_positions_forward(t, &m->place, x, segments), m->o.input_dropout);
    for (long i = 0; i < m->o.layers; i++)
        x = fv_block_forward(t, &m->blocks[i], x, &mask);
    x = fv_segment_mean(t, fv_norm_forward(t, &m->norm, x), segments);
    return fv_linear_forward(t, &m->output, fv_dropout(t, x, m->o.dropout));
}

fv_var *classifier_loss(const void *model, fv_tape *t, const size_t *texts, size_t count,
                        double *weight)
{
    const classifier_data *data = model;
    int32_t *labels = fv_tape_alloc(t, count, sizeof *labels);
    for (size_t i = 0; labels != NULL && i < count; i++)
        labels[i] = data->label[texts[i]];
    const fv_cross_entropy_opts opts = {.smoothing = data->model->o.smoothing};
    return fv_cross_entropy_sum(t, scores(data->model, t, data, texts, count), labels, &opts,
                                weight);
}

static fv_var *text_scores(const void *model, fv_tape *t, const size_t *texts, size_t count)
{
    const classifier_data *data = model;
    return scores(data->model, t, data, texts, count);
}

bool classifier_predict(classifier_data *data, int32_t *labels, double *probability,
                        fv_error *error)
{
    const fv_task task = {.model = data,
                          .samples = data->texts,
                          .offsets = data->offsets,
                          .scores = text_scores,
                          .per_sample = true};
    return fv_predict(&task, 0, labels, probability, error);
}

/* ---- data ----------------------------------------------------------------------------------------------- */

/* Makes room for one more word and its pieces; doubles what is full. */
static bool room(classifier_data *d)
{
    if (d->words + 1 >= d->words_room) {
        size_t n = d->words_room ? 2 * d->words_room : 1024;
        int32_t *word = realloc(d->word, n * sizeof *word);
        d->word = word ? word : d->word;
        size_t *bags = realloc(d->bag_offsets, (n + 1) * sizeof *bags);
        d->bag_offsets = bags ? bags : d->bag_offsets;
        if (!word || !bags)
            return false;
        d->words_room = n;
        d->bag_offsets[0] = 0;
    }
    if (d->bag_offsets[d->words] + FV_WORD_FEATURES > d->bags_room) {
        size_t n = d->bags_room ? 2 * d->bags_room : 16384;
        int32_t *ids = realloc(d->bag_ids, n * sizeof *ids);
        if (!ids)
            return false;
        d->bag_ids = ids;
        d->bags_room = n;
    }
    return true;
}

typedef struct {
    classifier_data *data;
    size_t first;
    bool cut, full;
} reading;

static bool add_word(void *context, const char *word)
{
    reading *r = context;
    classifier_data *d = r->data;
    const classifier *m = d->model;
    if (d->words - r->first == (size_t)m->o.longest) {
        r->cut = true;
        return false;
    }
    if (!room(d)) {
        r->full = true;
        return false;
    }
    int32_t *pieces = d->bag_ids + d->bag_offsets[d->words];
    d->word[d->words] = fv_vocab_id(m->words, word);
    d->bag_offsets[d->words + 1] =
        d->bag_offsets[d->words] +
        fv_word_features(word, (size_t)m->o.hash_rows, pieces, FV_WORD_FEATURES);
    d->words++;
    return true;
}

bool classifier_read(classifier_data *d, const classifier *m, size_t texts, const char *const *text,
                     const char *const *labels, const char *path, const size_t *lines,
                     fv_error *error)
{
    *d = (classifier_data){.model = m, .texts = texts};
    d->offsets = calloc(texts + 1, sizeof *d->offsets);
    d->label = calloc(texts + 1, sizeof *d->label);
    if (!d->offsets || !d->label || !room(d))
        return fv_fail(error, FV_FAILED, "%s: out of memory for %zu texts", path, texts);
    for (size_t i = 0; i < texts; i++) {
        reading r = {d, d->words, false, false};
        fv_split_words(text[i], add_word, &r);
        if (r.full)
            return fv_fail(error, FV_FAILED, "%s: out of memory", path);
        d->cut += r.cut;
        d->offsets[i + 1] = d->words;
        if (labels == NULL)
            continue;
        d->label[i] = fv_vocab_id(m->labels, labels[i]) - 1;
        if (d->label[i] < 0)
            return fv_fail(error, FV_DATA,
                           "%s:%zu:1: label \"%s\", expected one that the training data has", path,
                           lines[i], labels[i]);
    }
    return true;
}

void classifier_data_free(classifier_data *d)
{
    free(d->offsets);
    free(d->word);
    free(d->label);
    free(d->bag_offsets);
    free(d->bag_ids);
    *d = (classifier_data){0};
}

/* ---- checkpoint ------------------------------------------------------------------------------------------- */

char *classifier_json(const classifier *m, fv_error *error)
{
    json_t *root = json_pack("{s:s}", "task", "sentiment");
    settings_to_json(settings, SETTINGS, &m->o, root);
    const bool complete = vocab_to_json(m->words, "words", root, error) &&
                          vocab_to_json(m->labels, "labels", root, error);
    return model_json(root, complete, error);
}

bool classifier_load(classifier *m, const char *path, fv_error *error)
{
    fv_checkpoint *file;
    json_t *root;
    *m = (classifier){0};
    const json_t *model = model_open(path, "sentiment", &file, &root, error);
    bool ok = model != NULL && settings_from_json(settings, SETTINGS, &m->o, model) &&
              m->o.width % m->o.heads == 0;
    if (ok) {
        m->words = vocab_from_json("words", model, error);
        m->labels = vocab_from_json("labels", model, error);
    }
    ok = ok && m->words && m->labels && fv_vocab_size(m->labels) > 2 &&
         build(m, 0, fv_checkpoint_numbers(file), error);
    return model_close(path, file, root, ok, m->params, error);
}
