/* The classifier's network, its data and its checkpoint. */
#include "examples/shared/classifier.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static double or_default(double x, double fallback)
{
    return x < 0 ? 0 : x > 0 ? x : fallback; /* FV_NONE: really zero */
}

static long or_size(long x, long fallback)
{
    return x > 0 ? x : fallback;
}

static void defaults(classifier_options *o)
{
    o->width = or_size(o->width, 64);
    o->heads = or_size(o->heads, 4);
    o->layers = or_size(o->layers, 1);
    o->hidden = or_size(o->hidden, o->width);
    o->hash_rows = or_size(o->hash_rows, 16384);
    o->min_count = or_size(o->min_count, 2);
    o->longest = or_size(o->longest, 400);
    o->dropout = or_default(o->dropout, 0.3);
    o->input_dropout = or_default(o->input_dropout, 0.3);
    o->word_dropout = or_default(o->word_dropout, 0.1);
    o->smoothing = or_default(o->smoothing, 0.1);
}

/* ---- the network --------------------------------------------------------------------------------------- */

static bool build(classifier *m, uint64_t seed, fv_error *error)
{
    const classifier_options *o = &m->o;
    const size_t d = (size_t)o->width;
    const fv_embedding_opts table = {.deviation = 0.1, .touched_rows = true};
    m->params = fv_params_new(seed);
    m->blocks = calloc((size_t)o->layers, sizeof *m->blocks);
    if (m->params == NULL || m->blocks == NULL)
        return fv_fail(error, FV_FAILED, "classifier: out of memory");
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
    const fv_error *why = fv_params_error(m->params);
    return why->status == FV_OK || fv_fail(error, why->status, "%s", why->text);
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
    defaults(&m->o);
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
    return ok && build(m, seed, error);
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
    *weight = (double)count;
    const fv_cross_entropy_opts opts = {.smoothing = data->model->o.smoothing};
    return fv_cross_entropy_sum(t, scores(data->model, t, data, texts, count), labels, &opts, NULL);
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
    const classifier_options *o = &m->o;
    char *words = fv_vocab_to_json(m->words, error), *labels = fv_vocab_to_json(m->labels, error);
    json_t *root =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o*, s:o*}",
                  "task", "sentiment", "width", (json_int_t)o->width, "heads", (json_int_t)o->heads,
                  "layers", (json_int_t)o->layers, "hidden", (json_int_t)o->hidden, "hash_rows",
                  (json_int_t)o->hash_rows, "min_count", (json_int_t)o->min_count, "longest",
                  (json_int_t)o->longest, "dropout", o->dropout, "input_dropout", o->input_dropout,
                  "word_dropout", o->word_dropout, "smoothing", o->smoothing, "words",
                  words ? json_loads(words, 0, NULL) : NULL, "labels",
                  labels ? json_loads(labels, 0, NULL) : NULL);
    char *dump = words && labels && root ? json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    fv_memory(words, 0);
    fv_memory(labels, 0);
    json_decref(root);
    if (dump == NULL)
        fv_fail(error, FV_FAILED, "classifier: out of memory for the vocabulary");
    return dump;
}

static fv_vocab *get_vocab(const json_t *object, const char *name, fv_error *error)
{
    char *text = json_dumps(json_object_get(object, name), JSON_COMPACT);
    fv_vocab *vocab = text ? fv_vocab_from_json(text, error) : NULL;
    free(text);
    return vocab;
}

static bool load_options(classifier_options *o, const json_t *model)
{
    json_int_t whole[7];
    if (json_unpack((json_t *)(uintptr_t)model,
                    "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:F, s:F, s:F, s:F}", "width", &whole[0],
                    "heads", &whole[1], "layers", &whole[2], "hidden", &whole[3], "hash_rows",
                    &whole[4], "min_count", &whole[5], "longest", &whole[6], "dropout", &o->dropout,
                    "input_dropout", &o->input_dropout, "word_dropout", &o->word_dropout,
                    "smoothing", &o->smoothing) != 0)
        return false;
    for (int i = 0; i < 7; i++)
        if (whole[i] < 1 || whole[i] > 1 << 24)
            return false;
    o->width = (long)whole[0];
    o->heads = (long)whole[1];
    o->layers = (long)whole[2];
    o->hidden = (long)whole[3];
    o->hash_rows = (long)whole[4];
    o->min_count = (long)whole[5];
    o->longest = (long)whole[6];
    return o->width % o->heads == 0;
}

bool classifier_load(classifier *m, const char *path, fv_error *error)
{
    *m = (classifier){0};
    fv_checkpoint *file = fv_checkpoint_open(path, error);
    if (file == NULL)
        return false;
    json_t *root = json_loads(fv_checkpoint_json(file), 0, NULL);
    const json_t *model = json_object_get(root, "model");
    const char *task = json_string_value(json_object_get(model, "task"));
    bool ok = task != NULL && strcmp(task, "sentiment") == 0;
    if (!ok)
        fv_fail(error, FV_CHECKPOINT, "%s: is a model for %s, expected one for sentiment", path,
                task ? task : "another task");
    else if (!(ok = load_options(&m->o, model)))
        fv_fail(error, FV_CHECKPOINT,
                "%s: meta.json: the classifier's options are missing or out of range", path);
    if (ok) {
        m->words = get_vocab(model, "words", error);
        m->labels = get_vocab(model, "labels", error);
        ok = m->words && m->labels && fv_vocab_size(m->labels) > 2 && build(m, 0, error) &&
             fv_checkpoint_restore(file, m->params, NULL, error);
        if (!ok)
            fv_fail(error, FV_CHECKPOINT, "%s: the vocabularies are damaged", path);
    }
    json_decref(root);
    fv_checkpoint_close(file);
    return ok;
}
