/* The part-of-speech tagger: what it knows of a word, its network, and how it is kept in a checkpoint. */
#ifndef TAGGER_H
#define TAGGER_H

#include "fovea.h"

typedef enum { POSITIONS_RELATIVE, POSITIONS_LEARNED, POSITIONS_SINUSOIDAL } tagger_positions;

/* Sizes and rates; zero means the default. Kept in the checkpoint. */
typedef struct {
    long width, heads, layers, hidden; /* of the encoder: 128, 4, 2, 256 */
    long table_width, hash_rows;       /* of the embeddings: 128, 16384 */
    long min_count;                    /* rarer forms are unknown to the form embedding: 2 */
    long longest;                      /* rows of learned and sinusoidal positions: 256 */
    int positions;                     /* a tagger_positions */
    double dropout, input_dropout, attention_dropout, word_dropout; /* 0.2, 0.3, 0.1, 0.15 */
    double smoothing;                                               /* of labels: 0.1 */
    double auxiliary; /* weight of the XPOS and DEPREL losses: 0.5 */
    bool no_auxiliary;
} tagger_options;

enum { TAGGER_HEADS = 3 }; /* UPOS, and in training XPOS and DEPREL */

typedef struct {
    tagger_options o;
    fv_params *params;
    fv_vocab *forms, *lower, *labels[TAGGER_HEADS]; /* labels[0]: the 17 tags, fixed */
    fv_embedding form, low, bag;
    fv_norm input_norm, neighbour_norm, output_norm;
    fv_linear input, neighbour, output[TAGGER_HEADS];
    fv_positions place;
    fv_block *blocks;
} tagger;

/* Sentences as numbers: one entry a word, sentence after sentence. */
typedef struct {
    const fv_conllu *file;
    const tagger *model;
    int32_t *form, *low, *label[TAGGER_HEADS];
    size_t *bag_offsets; /* [words + 1] into bag_ids */
    int32_t *bag_ids;
} tagger_data;

/* Vocabularies and a fresh network from training data. False: error says why. */
bool tagger_new(tagger *model, const tagger_options *options, const fv_conllu *train, uint64_t seed,
                fv_error *error);
/* The same from a checkpoint. */
bool tagger_load(tagger *model, const char *path, fv_error *error);
void tagger_free(tagger *model);
/* The JSON object that tagger_load needs back; freed with free. */
char *tagger_json(const tagger *model, fv_error *error);

/* Looks every word up. With gold, each UPOS must be one of the 17 tags; without, they are not read. */
bool tagger_read(tagger_data *data, const tagger *model, const fv_conllu *file, bool gold,
                 fv_error *error);
void tagger_data_free(tagger_data *data);
/* Whether a word's form occurred in training. */
bool tagger_knows(const tagger *model, const char *form);

/* Scores of the tags for the words of some sentences: [words, 17]; segments gets their places. */
fv_var *tagger_forward(const tagger *model, fv_tape *t, const tagger_data *data,
                       const size_t *sentences, size_t count, const fv_segments **segments,
                       fv_var *scores[TAGGER_HEADS]);
/* As fv_task.loss wants it; model is a tagger_data. */
fv_var *tagger_loss(const void *model, fv_tape *t, const size_t *sentences, size_t count,
                    double *weight);
/* As fv_task.scores wants it: UPOS alone. */
fv_var *tagger_scores(const void *model, fv_tape *t, const size_t *sentences, size_t count);
/* A tag for every word of the file, in order. False: error says why. */
bool tagger_predict(tagger_data *data, int32_t *tags, fv_error *error);

#endif
