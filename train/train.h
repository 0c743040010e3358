/* What changes, feeds, saves or reports parameters: optimisers, schedules, fit, metrics, readers, files. */
#ifndef FV_TRAIN_H
#define FV_TRAIN_H

#include <signal.h>

#include "layers/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimisers ---------------------------------------------------------------------------------- */

/* Defaults and formulas are PyTorch's (torch.optim.AdamW, Adam, SGD). Kingma and Ba, 2014, arXiv
 * 1412.6980; Loshchilov and Hutter, 2017, arXiv 1711.05101. */
typedef enum { FV_ADAMW, FV_ADAM, FV_SGD } fv_optimizer_kind;
typedef struct {
    fv_optimizer_kind kind;
    double lr;           /* default 1e-3 */
    double beta1, beta2; /* Adam: default 0.9, 0.999; FV_NONE: 0 */
    double eps;          /* Adam: default 1e-8 */
    double weight_decay; /* default 0.01 for AdamW, else 0; FV_NONE: 0; not of no_decay ones */
    double momentum;     /* SGD: default 0 */
    bool nesterov;       /* SGD */
} fv_optimizer_opts;

/* A rule of update and its state. */
typedef struct fv_optimizer fv_optimizer;
/* State for every parameter of the set, which must be complete and outlive it; NULL when memory is out, or
 * an option is out of range or belongs to another kind. */
fv_optimizer *fv_optimizer_new(fv_params *params, const fv_optimizer_opts *opts, fv_error *error);
void fv_optimizer_free(fv_optimizer *optimizer);
/* One update. Gradients are summed over the tapes in a fixed binary tree, multiplied by scale, clipped to
 * the global norm clip (0: not clipped) and applied with rate lr. A NaN or Inf gradient is FV_NONFINITE,
 * names the parameter, and changes nothing. norm, when not NULL, gets the norm before clipping.
 * A parameter that no tape used stays as it is. Rows of a table that no tape used have a gradient of zero
 * (they decay and coast), or stay too when it is marked touched_rows: then Adam is torch's SparseAdam. */
FV_MUST_CHECK bool fv_optimizer_step(fv_optimizer *optimizer, fv_tape *const *tapes, int count,
                                     double scale, double lr, double clip, int threads,
                                     double *norm, fv_error *error);
/* Updates taken so far (the t of Adam's bias correction). */
uint64_t fv_optimizer_steps(const fv_optimizer *optimizer);
void fv_optimizer_set_steps(fv_optimizer *optimizer, uint64_t steps);
/* The state, for saving: slot 0 .. slots - 1 are named "exp_avg", "exp_avg_sq" or "momentum_buffer". */
int fv_optimizer_slots(const fv_optimizer *optimizer);
const char *fv_optimizer_slot_name(const fv_optimizer *optimizer, int slot);
fv_tensor fv_optimizer_slot(const fv_optimizer *optimizer, int slot, const fv_param *param);
/* The resolved options. */
const fv_optimizer_opts *fv_optimizer_get(const fv_optimizer *optimizer);

/* ---- schedules ----------------------------------------------------------------------------------- */

/* How the rate goes on after the warm-up. */
typedef enum { FV_CONSTANT, FV_LINEAR, FV_COSINE, FV_INVERSE_SQRT } fv_schedule_kind;

/* What the learning rate is multiplied by at update s (from 0) of total, with W steps of warm-up:
 *   warm-up       (s + 1) / W                              while s < W, so 1 is reached at s = W - 1;
 *   constant      1                                        afterwards;
 *   linear        final + (1 - final) (total - s) / (total - W)
 *   cosine        final + (1 - final) (1 + cos(pi (s - W) / (total - W))) / 2
 *   inverse sqrt  sqrt(max(W, 1) / (s + 1))                (Vaswani et al., 2017, arXiv 1706.03762).
 * Linear and cosine stay at final from s = total on. */
typedef struct {
    fv_schedule_kind kind;
    double warmup; /* W when >= 1, else a share of total; the nearest whole number; default 0 */
    double final;  /* where linear and cosine end, as a share of the rate; default 0 */
} fv_schedule;
/* That factor; 1 when schedule is NULL. */
double fv_schedule_at(const fv_schedule *schedule, uint64_t step, uint64_t total);

/* ---- batches ------------------------------------------------------------------------------------- */

/* How the samples of an epoch are cut into batches and shards. */
typedef struct {
    /* A batch closes before it has more rows (one longer sample is a batch) or more samples than this.
     * 0: no limit; both 0: 32 samples. */
    size_t batch_rows, batch_samples;
    bool keep_order; /* samples as they come, instead of shuffled and grouped by like length */
} fv_batch_opts;

/* The batches of one epoch: a function of (seed, epoch) alone. */
typedef struct {
    size_t count;
    size_t *offsets; /* [count + 1] into order */
    size_t *order;   /* sample numbers */
} fv_batches;
/* Of samples with rows[samples] rows each, fewer than 2^32 - 1. False when there are more, or memory is
 * out; *batches is then empty. Free it with fv_batches_free. */
bool fv_batches_make(fv_batches *batches, size_t samples, const size_t *rows,
                     const fv_batch_opts *opts, uint64_t seed, uint64_t epoch, fv_error *error);
void fv_batches_free(fv_batches *batches);

/* Columns of numbers for samples of different length: sample s is values[offsets[s]] .. */
typedef struct {
    size_t samples;
    const size_t *offsets;
    const int32_t *values;
} fv_ragged;
/* The chosen samples' segments and numbers end to end, in memory of the tape; NULL when that is out. */
const fv_segments *fv_pick_segments(fv_tape *t, const size_t *offsets, const size_t *samples,
                                    size_t count);
const int32_t *fv_pick(fv_tape *t, const fv_ragged *column, const size_t *samples, size_t count);

/* ---- fit ----------------------------------------------------------------------------------------- */

/* What is learned: samples, and how to build their scores and loss. Called on several tapes at once: these
 * functions read the model only. */
typedef struct {
    void *model;
    size_t samples;
    const size_t *offsets; /* [samples + 1] from 0: sample s has offsets[s + 1] - offsets[s] rows */
    /* Builds the loss, summed over these samples, and says what it is a sum over (rows, or samples), so
     * that the mean over a whole batch is exact. A batch that is a sum over 0 is passed over. */
    fv_var *(*loss)(const void *model, fv_tape *t, const size_t *samples, size_t count,
                    double *weight);
    /* Builds the scores of these samples: [rows, classes], or with per_sample [count, classes]. */
    fv_var *(*scores)(const void *model, fv_tape *t, const size_t *samples, size_t count);
    bool per_sample; /* one label a sample, instead of one a row */
    /* Optional: a score after each epoch, larger is better (say, accuracy on held-out data). */
    double (*evaluate)(void *model);
} fv_task;

typedef struct {
    int epochs; /* default 1 */
    fv_batch_opts batch;
    uint64_t seed;
    int shards; /* parts that a batch is cut into, whatever the threads; a power of two, default 4 */
    int threads; /* default: all cores */
    fv_optimizer_opts optimizer;
    fv_schedule schedule;
    double clip; /* global norm; default: none */
    /* A file that is written after every epoch, on stop, and every save_every steps; NULL: none. */
    const char *checkpoint;
    uint64_t save_every;
    bool resume;      /* go on from the checkpoint when there is one */
    const char *meta; /* JSON object kept in the checkpoint: vocabularies, options of the model */
    const char *metrics; /* JSON lines, one an epoch, are appended to this file; NULL: none */
    FILE *progress;      /* a bar (terminal) or a line now and then; NULL: silent */
    /* When it becomes nonzero: finish the step, save, FV_INTERRUPTED. */
    const volatile sig_atomic_t *stop;
} fv_fit_opts;

typedef struct {
    uint64_t steps;
    int epochs;
    double loss;  /* mean of the last epoch */
    double score; /* of the last evaluation */
    double best;  /* the largest score */
    double seconds;
    size_t tape_bytes; /* most memory that values and gradients took, over all shards */
} fv_fit_result;

/* Trains. The result is the same bits at any number of threads, and with or without a stop and resume in
 * between. False: error says why; the parameters hold the last good step. */
FV_MUST_CHECK bool fv_fit(fv_params *params, const fv_task *task, const fv_fit_opts *opts,
                          fv_fit_result *result, fv_error *error);

/* The label with the largest score for every row of all samples (or for every sample), in order, and its
 * probability when that is not NULL: [rows] or [samples] of each. No samples are fine. threads: 0 means
 * all cores; the bits are the same. */
FV_MUST_CHECK bool fv_predict(const fv_task *task, int threads, int32_t *labels,
                              double *probability, fv_error *error);

/* ---- metrics ------------------------------------------------------------------------------------- */

/* Counts of (gold, predicted) pairs. */
typedef struct {
    size_t classes;
    size_t *count; /* [classes, classes], gold by row */
} fv_confusion;
/* All zeros for that many classes, at least one; false otherwise, or when memory is out. Free it with
 * fv_confusion_free. */
bool fv_confusion_init(fv_confusion *confusion, size_t classes, fv_error *error);
void fv_confusion_free(fv_confusion *confusion);
/* Counts a pair; one with a label outside 0 .. classes - 1 is left out (as a negative gold label). */
void fv_confusion_add(fv_confusion *confusion, int32_t gold, int32_t predicted);
/* The share of pairs that agree; 0 when there are none. */
double fv_confusion_accuracy(const fv_confusion *confusion);
/* Precision, recall and F1 of a class; 0 where the count below is 0. */
void fv_confusion_class(const fv_confusion *confusion, size_t label, double *precision,
                        double *recall, double *f1);
/* The mean F1 of the classes that occur, as gold or as predicted; 0 when none does. */
double fv_confusion_macro_f1(const fv_confusion *confusion);

/* ---- checkpoints ----------------------------------------------------------------------------------- */

/* Writes parameters, the optimiser's state (NULL: none) and a JSON object as one .npz that numpy opens:
 * to a temporary file in the same folder, fsync, rename, fsync of the folder. On failure the old file
 * stands as it was; only when the last fsync fails is the new one there, and the message says so. A
 * symbolic link is followed. Equal contents give equal bytes. */
FV_MUST_CHECK bool fv_checkpoint_save(const char *path, const fv_params *params,
                                      const fv_optimizer *optimizer, const char *json,
                                      fv_error *error);

/* A checkpoint that was read. */
typedef struct fv_checkpoint fv_checkpoint;
/* Reads a whole checkpoint and verifies every size, name and checksum; NULL and an error that names the
 * file, the member and what is wrong otherwise. */
fv_checkpoint *fv_checkpoint_open(const char *path, fv_error *error);
/* Its JSON object; owned by the checkpoint. */
const char *fv_checkpoint_json(const fv_checkpoint *checkpoint);
/* How many numbers it holds, the optimiser's included. */
size_t fv_checkpoint_numbers(const fv_checkpoint *checkpoint);
/* Copies the values into a set with the same names and shapes (and into the optimiser, when not NULL).
 * False: the first name or shape that differs; nothing was changed. */
FV_MUST_CHECK bool fv_checkpoint_restore(const fv_checkpoint *checkpoint, fv_params *params,
                                         fv_optimizer *optimizer, fv_error *error);
void fv_checkpoint_close(fv_checkpoint *checkpoint);

/* ---- text ------------------------------------------------------------------------------------------ */

/* A vocabulary: texts with counts; id 0 is the unknown text. */
typedef struct fv_vocab fv_vocab;
/* An empty one; NULL when memory is out. */
fv_vocab *fv_vocab_new(fv_error *error);
void fv_vocab_free(fv_vocab *vocab);
/* Counts one more occurrence. Before fv_vocab_freeze only. */
bool fv_vocab_count(fv_vocab *vocab, const char *text, fv_error *error);
/* Gives ids 1 .. to the texts counted at least min_count times, most frequent first (ties by bytes), at
 * most max_size of them (0: no limit). */
bool fv_vocab_freeze(fv_vocab *vocab, size_t min_count, size_t max_size, fv_error *error);
/* The id of a text, 0 when unknown; and back (NULL for id 0 or out of range). */
int32_t fv_vocab_id(const fv_vocab *vocab, const char *text);
const char *fv_vocab_text(const fv_vocab *vocab, int32_t id);
/* How often it was counted (0: not kept in JSON); for id 0, the texts that got no id. */
size_t fv_vocab_occurrences(const fv_vocab *vocab, int32_t id);
/* Ids in use: one more than the texts. */
size_t fv_vocab_size(const fv_vocab *vocab);
/* As a JSON array of texts in order of their ids, and back. The text is freed with fv_memory(text, 0). */
char *fv_vocab_to_json(const fv_vocab *vocab, fv_error *error);
fv_vocab *fv_vocab_from_json(const char *json, fv_error *error);

/* Lower case of UTF-8 text (Unicode simple mapping), into out[size], cut at a whole character. */
void fv_lower(const char *text, char *out, size_t size);
/* Whether the bytes are well-formed UTF-8 without NUL; at, when not NULL, gets the first bad byte's place. */
bool fv_utf8_valid(const char *text, size_t length, size_t *at);
/* Hashed features of a word, numbers below rows: letter n-grams of length 2 to 4 of <lower-cased word>,
 * prefixes and suffixes of length 1 to 4, its collapsed shape, its length. Returns how many (at most max). */
size_t fv_word_features(const char *word, size_t rows, int32_t *ids, size_t max);
enum { FV_WORD_FEATURES = 60 };
/* Splits running text: runs of letters and digits (with inner apostrophes) and single other characters,
 * lower-cased. Calls word(context, text) for each; stops and returns false when that does. */
bool fv_split_words(const char *text, bool (*word)(void *context, const char *text), void *context);

/* ---- readers --------------------------------------------------------------------------------------- */

/* The ten columns of a CoNLL-U line. */
enum {
    FV_CONLLU_ID,
    FV_CONLLU_FORM,
    FV_CONLLU_LEMMA,
    FV_CONLLU_UPOS,
    FV_CONLLU_XPOS,
    FV_CONLLU_FEATS,
    FV_CONLLU_HEAD,
    FV_CONLLU_DEPREL,
    FV_CONLLU_DEPS,
    FV_CONLLU_MISC,
    FV_CONLLU_COLUMNS
};

/* A CoNLL-U file. Words are the lines with a plain number; comments, ranges (2-3) and empty nodes (5.1)
 * are kept for writing. */
typedef struct {
    size_t sentences, words, ranges, empty_nodes;
    const size_t *offsets;                           /* [sentences + 1] into the words */
    const char *const (*columns)[FV_CONLLU_COLUMNS]; /* [words]: its ten columns */
    const size_t *lines;                             /* [words]: its line in the file, from 1 */
    const char *path;
    struct fvi_conllu *inside;
} fv_conllu;
/* Reads path, or standard input for "-". NULL and "file:line:column: what is wrong, what was expected"
 * when it is malformed. Takes CRLF, a byte-order mark, and a missing last blank line. */
fv_conllu *fv_conllu_read(const char *path, fv_error *error);
/* The same from bytes; name stands in messages. */
fv_conllu *fv_conllu_parse(const char *name, const char *bytes, size_t length, fv_error *error);
void fv_conllu_free(fv_conllu *file);
/* Writes one sentence with all its lines; upos, when not NULL, replaces the UPOS of its words. False: writing failed. */
bool fv_conllu_write(FILE *out, const fv_conllu *file, size_t sentence, const char *const *upos);
/* The 17 UPOS tags in alphabetical order, and the number of one (-1: not a UPOS tag). */
enum { FV_UPOS_TAGS = 17 };
const char *fv_upos_name(int32_t tag);
int32_t fv_upos_tag(const char *name);
/* The tag of a word, into *tag; false, and an error that names file, line and column, when it has none
 * of the 17. The reader itself lets "_" and others through: a file to be tagged has no tags yet. */
bool fv_conllu_upos(const fv_conllu *file, size_t word, int32_t *tag, fv_error *error);

/* The texts of one column as a frozen vocabulary, and the ids of that column's words: ids[words], freed
 * with fv_memory(ids, 0). NULL in gives NULL. */
fv_vocab *fv_conllu_vocab(const fv_conllu *file, int column, size_t min_count, fv_error *error);
int32_t *fv_conllu_ids(const fv_conllu *file, int column, const fv_vocab *vocab, fv_error *error);

/* Labelled texts, one a line: label, separator, text, without quoting. */
typedef struct {
    size_t samples;
    const char *const *label, *const *text; /* [samples] */
    const size_t *lines;                    /* [samples]: its line in the file, from 1 */
    const char *path;
    struct fvi_tsv *inside;
} fv_tsv;
/* Reads path, or standard input for "-"; separator 0 is a tab. NULL and "file:line:column: what is wrong,
 * what was expected" when it is malformed. */
fv_tsv *fv_tsv_read(const char *path, char separator, fv_error *error);
/* The same from bytes; name stands in messages. */
fv_tsv *fv_tsv_parse(const char *name, const char *bytes, size_t length, char separator,
                     fv_error *error);
void fv_tsv_free(fv_tsv *file);

/* ---- reports --------------------------------------------------------------------------------------- */

/* A progress bar with rate and time left, as fv_fit draws it. Of total steps, first were done before. */
typedef struct {
    FILE *out;
    uint64_t total, done, first;
    double started, drawn;
    bool terminal, color;
} fv_progress;
/* Starts at step done of total; out NULL: nothing is shown. */
void fv_progress_begin(fv_progress *p, FILE *out, uint64_t done, uint64_t total);
/* Shows it again when a tenth of a second has passed (ten seconds when out is no terminal). */
void fv_progress_update(fv_progress *p, uint64_t done, const char *text);
/* Ends the line (and clears it when text is NULL). */
void fv_progress_end(fv_progress *p, const char *text);

/* Appends one JSON object as a line of the file, in one write; made if there is none. FV_DISK otherwise. */
bool fv_metrics_append(const char *path, const char *json, fv_error *error);
/* Drops the lines of later epochs (and a last line that was cut short), so that a resumed run leaves the
 * file of an uninterrupted one. Lines without an "epoch" stay, a missing file is fine, a line that is no
 * JSON object is FV_DATA. */
bool fv_metrics_cut(const char *path, uint64_t epoch, fv_error *error);

/* Draws attention weights [heads, count, count] over words as an SVG, one panel a head, words on both
 * axes: the row word looks at the column words. tags, when not NULL, stand behind the row words. More than
 * FV_SVG_WORDS words are FV_USAGE; FV_DISK: the old file stands. */
enum { FV_SVG_WORDS = 1000 };
bool fv_svg_attention(const char *path, const char *title, size_t count, const char *const *words,
                      const char *const *tags, size_t heads, const float *weights, fv_error *error);

#ifdef __cplusplus
}
#endif
#endif
