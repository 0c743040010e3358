/* A two-block tagger on made-up sentences that uses a bit of everything, for tests of whole steps. */
#ifndef TEST_SMALL_MODEL_H
#define TEST_SMALL_MODEL_H

#include <string.h>

#include "layers/layers.h"

enum { SMALL_WORDS = 50, SMALL_FEATURES = 40, SMALL_CLASSES = 7, SMALL_SENTENCES = 7 };

/* Rows of the sentences that there are: none, one, and across the block sizes of the kernels. */
static const size_t small_lengths[SMALL_SENTENCES] = {5, 1, 17, 0, 70, 8, 131};
enum { SMALL_ROWS = 5 + 1 + 17 + 70 + 8 + 131 };

typedef struct {
    fv_embedding words, features;
    fv_positions positions;
    fv_linear window;
    fv_block block[2];
    fv_norm norm;
    fv_linear head;
} small_model;

static inline small_model small_model_init(fv_params *params, size_t d, double dropout)
{
    const fv_scope root = fv_root(params);
    const fv_embedding_opts touched = {.deviation = 0.5, .touched_rows = true};
    const fv_block_opts relu = {.hidden = d + 3,
                                .dropout = dropout,
                                .attention = {.dropout = dropout, .relative_clip = 3}},
                        gelu = {.dropout = dropout, .post_norm = true, .activation = FV_ACT_GELU};
    return (small_model){
        .words = fv_embedding_init(fv_under(root, "words"), SMALL_WORDS, d, &touched),
        .features = fv_embedding_init(fv_under(root, "features"), SMALL_FEATURES, d, &touched),
        .positions = fv_positions_init(fv_under(root, "positions"), 200, d, NULL),
        .window = fv_linear_init(fv_under(root, "window"), 3 * d, d, NULL),
        .block = {fv_block_init(fv_under(root, "layers.%d", 0), d, 2, &relu),
                  fv_block_init(fv_under(root, "layers.%d", 1), d, 2, &gelu)},
        .norm = fv_norm_init(fv_under(root, "norm"), d),
        .head = fv_linear_init(fv_under(root, "head"), d, SMALL_CLASSES, NULL)};
}

typedef struct {
    size_t rows, at[SMALL_SENTENCES + 1], bag_at[SMALL_ROWS + 1];
    int32_t ids[SMALL_ROWS], bag_ids[4 * SMALL_ROWS], labels[SMALL_ROWS];
    fv_segments segments, bags;
} small_batch;

/* The chosen sentences end to end; what a sentence holds does not depend on the others. */
static inline void small_batch_make(small_batch *b, size_t count, const int *sentences)
{
    memset(b, 0, sizeof *b);
    for (size_t s = 0; s < count; s++) {
        const size_t n = (size_t)sentences[s];
        for (size_t i = 0; i < small_lengths[n]; i++) {
            const size_t row = b->rows++;
            b->ids[row] = (int32_t)((31 * n + 17 * i) % SMALL_WORDS);
            b->labels[row] = (int32_t)((5 * n + 3 * i) % (SMALL_CLASSES + 1)) - 1;
            b->bag_at[row + 1] = b->bag_at[row];
            for (size_t e = 0; e < (n + i) % 5; e++)
                b->bag_ids[b->bag_at[row + 1]++] =
                    (int32_t)((13 * n + 5 * i + 11 * e * e) % SMALL_FEATURES);
        }
        b->at[s + 1] = b->rows;
    }
    b->segments = (fv_segments){count, b->at};
    b->bags = (fv_segments){b->rows, b->bag_at};
}

/* Scores [rows, classes]; with causal no row looks ahead. */
static inline fv_var *small_model_forward(fv_tape *t, const small_model *m, const small_batch *b,
                                          bool causal)
{
    const fv_mask mask = {.queries = &b->segments, .causal = causal};
    fv_var *x = fv_embedding_forward(t, &m->words, b->ids, b->rows);
    x = fv_add(t, x, fv_embedding_bags(t, &m->features, b->bag_ids, &b->bags));
    if (!causal)
        x = fv_linear_forward(t, &m->window, fv_neighbours(t, x, &b->segments, 1));
    x = fv_positions_forward(t, &m->positions, x, &b->segments);
    for (int i = 0; i < 2; i++)
        x = fv_block_forward(t, &m->block[i], x, &mask);
    return fv_linear_forward(t, &m->head, fv_norm_forward(t, &m->norm, x));
}

static inline fv_var *small_model_loss(fv_tape *t, const small_model *m, const small_batch *b)
{
    const fv_cross_entropy_opts smooth = {.smoothing = 0.1};
    return fv_cross_entropy_sum(t, small_model_forward(t, m, b, false), b->labels, &smooth, NULL);
}

#endif
