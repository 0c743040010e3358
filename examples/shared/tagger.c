/* The tagger's network: what a word looks like (its form, its lower case, its pieces), what stands beside
 * it, and two blocks of attention with a learned bias by distance; a linear layer over 17 tags. */
#include "examples/shared/tagger.h"
#include "examples/shared/model_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const setting settings[] = {
#define AT(x) #x, offsetof(tagger_options, x)
    {AT(width), false, 128, 8192},         {AT(heads), false, 4, 256},
    {AT(layers), false, 2, 100},           {AT(hidden), false, 256, 65536},
    {AT(table_width), false, 128, 8192},   {AT(hash_rows), false, 16384, 16777216},
    {AT(min_count), false, 2, 1e9},        {AT(longest), false, 256, 1e6},
    {AT(dropout), true, 0.2, 1},           {AT(input_dropout), true, 0.3, 1},
    {AT(attention_dropout), true, 0.1, 1}, {AT(word_dropout), true, 0.15, 1},
    {AT(smoothing), true, 0.1, 1},         {AT(auxiliary), true, 0.5, 1e6},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* ---- vocabularies ---------------------------------------------------------------------------------- */

/* The column of each extra head; rare labels beyond the first 400 share number 0. */
static const int label_column[TAGGER_HEADS] = {FV_CONLLU_UPOS, FV_CONLLU_XPOS, FV_CONLLU_DEPREL};
enum { MOST_LABELS = 400, MOST_BYTES = 4096 };

static bool count_words(tagger *m, const fv_conllu *file, fv_error *error)
{
    char low[MOST_BYTES];
    for (size_t w = 0; w < file->words; w++) {
        const char *form = file->columns[w][FV_CONLLU_FORM];
        fv_lower(form, low, sizeof low);
        if (!fv_vocab_count(m->forms, form, error) || !fv_vocab_count(m->lower, low, error))
            return false;
        for (int k = 1; k < TAGGER_HEADS && !m->o.no_auxiliary; k++) {
            const char *label = file->columns[w][label_column[k]];
            if (strcmp(label, "_") != 0 && !fv_vocab_count(m->labels[k], label, error))
                return false;
        }
    }
    return fv_vocab_freeze(m->forms, 1, 0, error) && fv_vocab_freeze(m->lower, 1, 0, error) &&
           fv_vocab_freeze(m->labels[1], 1, MOST_LABELS, error) &&
           fv_vocab_freeze(m->labels[2], 1, MOST_LABELS, error);
}

/* How many of the most frequent texts (id 0, unknown, included) were counted often enough. */
static size_t frequent(const fv_vocab *vocab, long min_count)
{
    size_t n = fv_vocab_size(vocab);
    while (n > 1 && fv_vocab_occurrences(vocab, (int32_t)n - 1) < (size_t)min_count)
        n--;
    return n;
}

/* ---- the network ------------------------------------------------------------------------------------ */

/* most: a file's word for sizes is believed up to so many numbers; 0: no limit. */
static bool build(tagger *m, size_t forms, size_t lower, uint64_t seed, size_t most,
                  fv_error *error)
{
    const tagger_options *o = &m->o;
    const size_t d = (size_t)o->width, e = (size_t)o->table_width;
    const fv_embedding_opts table = {.deviation = 1 / sqrt((double)e), .touched_rows = true};
    const bool relative = o->positions == POSITIONS_RELATIVE;
    m->params = fv_params_new(seed);
    m->blocks = calloc((size_t)o->layers, sizeof *m->blocks);
    if (m->params == NULL || m->blocks == NULL)
        return fv_fail(error, FV_FAILED, "tagger: out of memory");
    fv_params_limit(m->params, most);
    const fv_scope root = fv_root(m->params);
    m->form = fv_embedding_init(fv_under(root, "embedding.form"), forms, e, &table);
    m->low = fv_embedding_init(fv_under(root, "embedding.lower"), lower, e, &table);
    m->bag = fv_embedding_init(fv_under(root, "embedding.pieces"), (size_t)o->hash_rows, e, &table);
    m->input_norm = fv_norm_init(fv_under(root, "input.norm"), 3 * e);
    m->input = fv_linear_init(fv_under(root, "input.linear"), 3 * e, d, NULL);
    if (!relative)
        m->place = fv_positions_init(
            fv_under(root, "positions"), (size_t)o->longest, d,
            &(fv_positions_opts){.sinusoidal = o->positions == POSITIONS_SINUSOIDAL});
    m->neighbour_norm = fv_norm_init(fv_under(root, "neighbours.norm"), d);
    m->neighbour = fv_linear_init(fv_under(root, "neighbours.linear"), 3 * d, d, NULL);
    const fv_block_opts block = {.hidden = (size_t)o->hidden,
                                 .dropout = o->dropout,
                                 .attention = {.dropout = o->attention_dropout,
                                               .relative_clip = relative ? 8 : 0,
                                               .relative_start = 2}};
    for (long i = 0; i < o->layers; i++)
        m->blocks[i] =
            fv_block_init(fv_under(root, "encoder.layers.%ld", i), d, (size_t)o->heads, &block);
    m->output_norm = fv_norm_init(fv_under(root, "encoder.norm"), d);
    m->output[0] = fv_linear_init(fv_under(root, "upos"), d, FV_UPOS_TAGS, NULL);
    for (int k = 1; k < TAGGER_HEADS; k++)
        if (fv_vocab_size(m->labels[k]) > 1)
            m->output[k] = fv_linear_init(fv_under(root, k == 1 ? "xpos" : "deprel"), d,
                                          fv_vocab_size(m->labels[k]), NULL);
    return true;
}

bool tagger_new(tagger *m, const tagger_options *options, const fv_conllu *train, uint64_t seed,
                fv_error *error)
{
    *m = (tagger){.o = *options};
    settings_resolve(settings, SETTINGS, &m->o);
    m->forms = fv_vocab_new(error);
    m->lower = fv_vocab_new(error);
    for (int k = 1; k < TAGGER_HEADS; k++)
        m->labels[k] = fv_vocab_new(error);
    if (train->words == 0)
        return fv_fail(error, FV_DATA, "%s: holds no words to train on", train->path);
    return m->forms && m->lower && m->labels[1] && m->labels[2] && count_words(m, train, error) &&
           build(m, frequent(m->forms, m->o.min_count), frequent(m->lower, m->o.min_count), seed, 0,
                 error) &&
           model_made(m->params, error);
}

void tagger_free(tagger *m)
{
    fv_vocab_free(m->forms);
    fv_vocab_free(m->lower);
    for (int k = 1; k < TAGGER_HEADS; k++)
        fv_vocab_free(m->labels[k]);
    fv_params_free(m->params);
    free(m->blocks);
    *m = (tagger){0};
}

/* The words that an embedding's table has rows for; the others are unknown to it, row 0. */
static int32_t row_of(const fv_embedding *table, const fv_vocab *vocab, const char *text)
{
    int32_t id = fv_vocab_id(vocab, text);
    return (size_t)id < table->weight->value.shape.size[0] ? id : 0;
}

static fv_var *first_features(const tagger *m, fv_tape *t, const tagger_data *data,
                              const size_t *sentences, size_t count, size_t words)
{
    const fv_ragged forms = {data->file->sentences, data->file->offsets, data->form};
    const fv_ragged lower = {data->file->sentences, data->file->offsets, data->low};
    const int32_t *form = fv_pick(t, &forms, sentences, count),
                  *low = fv_pick(t, &lower, sentences, count);
    int32_t *ids[2] = {fv_tape_alloc(t, words, sizeof **ids),
                       fv_tape_alloc(t, words, sizeof **ids)};
    size_t *bags = fv_tape_alloc(t, words + 1, sizeof *bags);
    fv_segments *pieces = fv_tape_alloc(t, 1, sizeof *pieces);
    if (!form || !low || !ids[0] || !ids[1] || !bags || !pieces)
        return NULL;
    /* a form is replaced by the unknown now and then, so that the unknown's row is trained too */
    const fv_rng rng = fv_tape_rng(t);
    for (size_t w = 0; w < words; w++) {
        bool hide = fv_tape_mode(t) == FV_TRAIN && fv_rng_uniform(rng, w) < m->o.word_dropout;
        ids[0][w] = hide ? 0 : form[w];
        ids[1][w] = hide ? 0 : low[w];
    }
    size_t at = 0, word = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t w = data->file->offsets[sentences[s]];
             w < data->file->offsets[sentences[s] + 1]; w++) {
            at += data->bag_offsets[w + 1] - data->bag_offsets[w];
            bags[++word] = at;
        }
    int32_t *features = fv_tape_alloc(t, at + 1, sizeof *features);
    if (features == NULL)
        return NULL;
    word = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t w = data->file->offsets[sentences[s]];
             w < data->file->offsets[sentences[s] + 1]; w++)
            memcpy(features + bags[word++], data->bag_ids + data->bag_offsets[w],
                   (data->bag_offsets[w + 1] - data->bag_offsets[w]) * sizeof *features);
    *pieces = (fv_segments){words, bags};
    fv_var *parts[] = {fv_embedding_forward(t, &m->form, ids[0], words),
                       fv_embedding_forward(t, &m->low, ids[1], words),
                       fv_embedding_bags(t, &m->bag, features, pieces)};
    return fv_concat(t, 3, parts, -1);
}

fv_var *tagger_forward(const tagger *m, fv_tape *t, const tagger_data *data,
                       const size_t *sentences, size_t count, const fv_segments **segments,
                       fv_var *scores[TAGGER_HEADS])
{
    const fv_segments *at = fv_pick_segments(t, data->file->offsets, sentences, count);
    if (at == NULL)
        return NULL;
    *segments = at;
    const fv_mask mask = {.queries = at};
    fv_var *x = first_features(m, t, data, sentences, count, fv_segments_rows(at));
    x = fv_dropout(t, fv_norm_forward(t, &m->input_norm, x), m->o.input_dropout);
    x = fv_linear_forward(t, &m->input, x);
    if (m->place.weight != NULL)
        x = fv_positions_forward(t, &m->place, x, at);
    fv_var *beside = fv_neighbours(t, fv_norm_forward(t, &m->neighbour_norm, x), at, 1);
    beside = fv_linear_relu_forward(t, &m->neighbour, beside);
    x = fv_add(t, x, fv_dropout(t, beside, m->o.dropout));
    for (long i = 0; i < m->o.layers; i++)
        x = fv_block_forward(t, &m->blocks[i], x, &mask);
    x = fv_dropout(t, fv_norm_forward(t, &m->output_norm, x), m->o.dropout);
    for (int k = 0; k < TAGGER_HEADS; k++) {
        bool wanted = k == 0 || (fv_tape_mode(t) != FV_EVAL && m->output[k].weight != NULL);
        scores[k] = wanted ? fv_linear_forward(t, &m->output[k], x) : NULL;
    }
    return scores[0];
}

fv_var *tagger_scores(const void *model, fv_tape *t, const size_t *sentences, size_t count)
{
    const tagger_data *data = model;
    const fv_segments *segments;
    fv_var *scores[TAGGER_HEADS];
    return tagger_forward(data->model, t, data, sentences, count, &segments, scores);
}

fv_var *tagger_loss(const void *model, fv_tape *t, const size_t *sentences, size_t count,
                    double *weight)
{
    const tagger_data *data = model;
    const tagger *m = data->model;
    const fv_cross_entropy_opts opts = {.smoothing = m->o.smoothing};
    const fv_segments *segments;
    fv_var *scores[TAGGER_HEADS], *loss = NULL;
    if (tagger_forward(m, t, data, sentences, count, &segments, scores) == NULL)
        return NULL;
    *weight = (double)fv_segments_rows(segments);
    for (int k = 0; k < TAGGER_HEADS; k++) {
        if (scores[k] == NULL)
            continue;
        const fv_ragged gold = {data->file->sentences, data->file->offsets, data->label[k]};
        const int32_t *labels = fv_pick(t, &gold, sentences, count);
        fv_var *part = fv_cross_entropy_sum(t, scores[k], labels, &opts, NULL);
        loss = k == 0 ? part : fv_add(t, loss, fv_scale(t, part, m->o.auxiliary));
    }
    return loss;
}

/* ---- data --------------------------------------------------------------------------------------------- */

bool tagger_read(tagger_data *data, const tagger *m, const fv_conllu *file, bool gold,
                 fv_error *error)
{
    const size_t words = file->words;
    int32_t pieces[FV_WORD_FEATURES];
    char low[MOST_BYTES];
    *data = (tagger_data){.file = file, .model = m};
    data->form = calloc(words + 1, sizeof *data->form);
    data->low = calloc(words + 1, sizeof *data->low);
    for (int k = 0; k < TAGGER_HEADS; k++)
        data->label[k] = calloc(words + 1, sizeof *data->label[k]);
    data->bag_offsets = calloc(words + 1, sizeof *data->bag_offsets);
    data->bag_ids = calloc((words + 1) * FV_WORD_FEATURES, sizeof *data->bag_ids);
    if (!data->form || !data->low || !data->label[0] || !data->label[1] || !data->label[2] ||
        !data->bag_offsets || !data->bag_ids)
        return fv_fail(error, FV_FAILED, "%s: out of memory for %zu words", file->path, words);
    for (size_t s = 0; s < file->sentences; s++) {
        const size_t rows = file->offsets[s + 1] - file->offsets[s];
        if (m->place.weight != NULL && rows > (size_t)m->o.longest)
            return fv_fail(error, FV_DATA,
                           "%s:%zu: a sentence of %zu words, the model's positions end at %ld",
                           file->path, file->lines[file->offsets[s]], rows, m->o.longest);
    }
    for (size_t w = 0; w < words; w++) {
        const char *form = file->columns[w][FV_CONLLU_FORM];
        fv_lower(form, low, sizeof low);
        data->form[w] = row_of(&m->form, m->forms, form);
        data->low[w] = row_of(&m->low, m->lower, low);
        size_t n = fv_word_features(form, (size_t)m->o.hash_rows, pieces, FV_WORD_FEATURES);
        memcpy(data->bag_ids + data->bag_offsets[w], pieces, n * sizeof *pieces);
        data->bag_offsets[w + 1] = data->bag_offsets[w] + n;
        if (gold && !fv_conllu_upos(file, w, &data->label[0][w], error))
            return false;
        for (int k = 1; k < TAGGER_HEADS; k++) {
            const char *label = file->columns[w][label_column[k]];
            data->label[k][w] = strcmp(label, "_") == 0 ? -1 : fv_vocab_id(m->labels[k], label);
        }
    }
    return true;
}

void tagger_data_free(tagger_data *data)
{
    free(data->form);
    free(data->low);
    for (int k = 0; k < TAGGER_HEADS; k++)
        free(data->label[k]);
    free(data->bag_offsets);
    free(data->bag_ids);
    *data = (tagger_data){0};
}

bool tagger_knows(const tagger *m, const char *form)
{
    return fv_vocab_id(m->forms, form) != 0;
}

bool tagger_predict(tagger_data *data, int32_t *tags, fv_error *error)
{
    const fv_task task = {.model = data,
                          .samples = data->file->sentences,
                          .offsets = data->file->offsets,
                          .scores = tagger_scores};
    return fv_predict(&task, 0, tags, NULL, error);
}

/* ---- checkpoint ----------------------------------------------------------------------------------------- */

char *tagger_json(const tagger *m, fv_error *error)
{
    json_t *root =
        json_pack("{s:s, s:i, s:I, s:I}", "task", "pos_tagging", "positions", m->o.positions,
                  "form_rows", (json_int_t)m->form.weight->value.shape.size[0], "lower_rows",
                  (json_int_t)m->low.weight->value.shape.size[0]);
    settings_to_json(settings, SETTINGS, &m->o, root);
    const bool complete = vocab_to_json(m->forms, "forms", root, error) &&
                          vocab_to_json(m->lower, "lower", root, error) &&
                          vocab_to_json(m->labels[1], "xpos", root, error) &&
                          vocab_to_json(m->labels[2], "deprel", root, error);
    return model_json(root, complete, error);
}

bool tagger_load(tagger *m, const char *path, fv_error *error)
{
    fv_checkpoint *file;
    json_t *root;
    json_int_t forms = 0, lower = 0;
    *m = (tagger){0};
    const json_t *model = model_open(path, "pos_tagging", &file, &root, error);
    bool ok = model != NULL && settings_from_json(settings, SETTINGS, &m->o, model) &&
              m->o.width % m->o.heads == 0;
    if (ok) {
        m->o.positions = (int)json_integer_value(json_object_get(model, "positions"));
        forms = json_integer_value(json_object_get(model, "form_rows"));
        lower = json_integer_value(json_object_get(model, "lower_rows"));
        m->forms = vocab_from_json("forms", model, error);
        m->lower = vocab_from_json("lower", model, error);
        m->labels[1] = vocab_from_json("xpos", model, error);
        m->labels[2] = vocab_from_json("deprel", model, error);
    }
    ok = ok && m->forms && m->lower && m->labels[1] && m->labels[2] &&
         m->o.positions >= POSITIONS_RELATIVE && m->o.positions <= POSITIONS_SINUSOIDAL &&
         forms >= 1 && lower >= 1 &&
         build(m, (size_t)forms, (size_t)lower, 0, fv_checkpoint_numbers(file), error);
    return model_close(path, file, root, ok, m->params, error);
}
