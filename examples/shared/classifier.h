/* The text classifier: words, their pieces and places, an encoder, the mean over each text. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include "fovea.h"

/* Sizes and rates; zero means the default. Kept in the checkpoint. */
typedef struct {
    long width, heads, layers, hidden;           /* of the encoder: 64, 4, 1, 64 */
    long hash_rows;                              /* for the pieces of words: 16384 */
    long min_count;                              /* rarer words are unknown: 2 */
    long longest;                                /* words of a text that are read: 400 */
    double dropout, input_dropout, word_dropout; /* 0.3, 0.3, 0.1 */
    double smoothing;                            /* of labels: 0.1 */
} classifier_options;

typedef struct {
    classifier_options o;
    fv_params *params;
    fv_vocab *words, *labels; /* label number k is id k + 1 */
    fv_embedding word, piece;
    fv_positions place;
    fv_block *blocks;
    fv_norm norm;
    fv_linear output;
} classifier;

/* Texts as numbers: one entry a word, text after text. */
typedef struct {
    const classifier *model;
    size_t texts, cut; /* cut: texts that were longer than what is read */
    size_t *offsets;   /* [texts + 1] into word and bag_offsets */
    int32_t *word, *label;
    size_t *bag_offsets; /* [words + 1] into bag_ids */
    int32_t *bag_ids;
    size_t words, words_room, bags_room;
} classifier_data;

bool classifier_new(classifier *model, const classifier_options *options, const fv_tsv *train,
                    uint64_t seed, fv_error *error);
bool classifier_load(classifier *model, const char *path, fv_error *error);
void classifier_free(classifier *model);
/* The JSON object that classifier_load needs back; freed with free. */
char *classifier_json(const classifier *model, fv_error *error);

/* Looks up texts (and, when labels is not NULL, their labels). path and lines stand in messages. */
bool classifier_read(classifier_data *data, const classifier *model, size_t texts,
                     const char *const *text, const char *const *labels, const char *path,
                     const size_t *lines, fv_error *error);
void classifier_data_free(classifier_data *data);

/* As fv_task.loss wants it; model is a classifier_data. */
fv_var *classifier_loss(const void *model, fv_tape *t, const size_t *texts, size_t count,
                        double *weight);
/* The number of the likeliest label of each text, and its probability when that is not NULL. */
bool classifier_predict(classifier_data *data, int32_t *labels, double *probability,
                        fv_error *error);

#endif
