/* Where a run of fv_fit stands, and how that is written into a checkpoint. Private to train/. */
#ifndef FVI_CURSOR_H
#define FVI_CURSOR_H

#include "train/train.h"

typedef struct {
    uint64_t step; /* updates taken */
    int epoch;     /* from 0 */
    size_t batch;  /* of this epoch, done */
    double loss;   /* of this epoch so far: sum, and what it is a sum over */
    double weight;
    double last_loss; /* mean of the epoch before */
    double score, best;
    bool scored; /* an evaluation has been made */
} fvi_cursor;

/* The checkpoint's JSON: the cursor, the options that decide the numbers, and the caller's object. NULL
 * after an error; freed with fv_memory(text, 0). */
char *fvi_cursor_to_json(const fvi_cursor *cursor, const fv_task *task, const fv_fit_opts *opts,
                         const fv_optimizer_opts *optimizer, fv_error *error);
/* Reads the cursor back; refuses when all else (options, model) is not as in now, this run's own JSON. */
bool fvi_cursor_from_json(fvi_cursor *cursor, const char *json, const char *now, const char *path,
                          fv_error *error);

/* One line of the metrics file; freed with fv_memory(text, 0). */
char *fvi_metrics_line(const fvi_cursor *cursor, double seconds, fv_error *error);

#endif
