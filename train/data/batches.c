/* Batches: the order of an epoch as a function of (seed, epoch), and the numbers of chosen samples.
 *
 * Shuffled samples are sorted by length inside buckets of about 50 batches, so that the samples of a batch are
 * alike, yet fall together by chance; then the batches themselves are shuffled. */
#include <string.h>

#include "autograd/op.h"
#include "train/data/data.h"

enum { DEFAULT_SAMPLES = 32, BUCKET_BATCHES = 50 };

/* ---- order -------------------------------------------------------------------------------------------- */

static bool shorter(const void *context, size_t a, size_t b)
{
    const size_t *rows = context;
    return rows[a] < rows[b];
}

static fv_batch_opts resolve(const fv_batch_opts *opts)
{
    fv_batch_opts o = opts ? *opts : (fv_batch_opts){0};
    if (o.batch_rows == 0 && o.batch_samples == 0)
        o.batch_samples = DEFAULT_SAMPLES;
    if (o.batch_rows == 0)
        o.batch_rows = SIZE_MAX;
    if (o.batch_samples == 0)
        o.batch_samples = SIZE_MAX;
    return o;
}

/* How many samples 50 batches hold, about. */
static size_t bucket_size(size_t samples, const size_t *rows, const fv_batch_opts *o)
{
    double all = 0;
    for (size_t s = 0; s < samples; s++)
        all += (double)rows[s];
    double batch = (double)o->batch_samples;
    if (all > 0 && batch * all > (double)o->batch_rows * (double)samples)
        batch = (double)o->batch_rows * (double)samples / all;
    double bucket = BUCKET_BATCHES * (batch < 1 ? 1 : batch);
    return bucket < (double)samples ? (size_t)bucket : samples;
}

static void group_by_length(size_t *order, size_t *scratch, size_t samples, const size_t *rows,
                            size_t bucket)
{
    for (size_t first = 0, count; first < samples; first += count) {
        count = samples - first < bucket ? samples - first : bucket;
        fvi_sort(count, order + first, scratch, shorter, rows);
    }
}

/* Cuts the order into batches; offsets has room for every sample to be one. How many there are. */
static size_t cut(size_t *offsets, const size_t *order, size_t samples, const size_t *rows,
                  const fv_batch_opts *o)
{
    size_t count = 0, filled = 0;
    for (size_t i = 0; i < samples; i++) {
        const size_t more = rows[order[i]];
        bool full = count > 0 && (i - offsets[count - 1] >= o->batch_samples ||
                                  filled > o->batch_rows || more > o->batch_rows - filled);
        if (count == 0 || full) {
            offsets[count++] = i;
            filled = 0;
        }
        filled = more > SIZE_MAX - filled ? SIZE_MAX : filled + more;
    }
    offsets[count] = samples;
    return count;
}

/* Puts the batches in a random order: copies of order and offsets are read, the originals rewritten. */
static void shuffle_batches(fv_batches *b, const size_t *from, const size_t *starts, size_t *turn,
                            fv_rng rng)
{
    size_t at = 0;
    fv_rng_shuffle(rng, b->count, turn);
    for (size_t i = 0; i < b->count; i++) {
        const size_t first = starts[turn[i]], end = starts[turn[i] + 1];
        b->offsets[i] = at;
        memcpy(b->order + at, from + first, (end - first) * sizeof *from);
        at += end - first;
    }
}

bool fv_batches_make(fv_batches *batches, size_t samples, const size_t *rows,
                     const fv_batch_opts *opts, uint64_t seed, uint64_t epoch, fv_error *error)
{
    const fv_batch_opts o = resolve(opts);
    *batches = (fv_batches){0};
    if (samples > 0 && rows == NULL)
        return fv_fail(error, FV_USAGE, "batches: no lengths for %zu samples", samples);
    if (samples >= UINT32_MAX)
        return fv_fail(error, FV_USAGE, "batches: %zu samples, expected fewer than 2^32 - 1",
                       samples);
    /* The scratch holds copies of order and offsets, and the turn of each batch. */
    const size_t room = samples + 1;
    size_t *order = fvi_calloc(room, sizeof *order), *offsets = fvi_calloc(room, sizeof *offsets);
    size_t *scratch = o.keep_order ? NULL : fvi_calloc(room, 3 * sizeof *scratch);
    if (order == NULL || offsets == NULL || (scratch == NULL && !o.keep_order)) {
        fvi_free(order);
        fvi_free(offsets);
        fvi_free(scratch);
        return fv_fail(error, FV_FAILED, "batches: out of memory for %zu samples", samples);
    }
    *batches = (fv_batches){0, offsets, order};
    if (o.keep_order) {
        for (size_t i = 0; i < samples; i++)
            order[i] = i;
        batches->count = cut(offsets, order, samples, rows, &o);
        return true;
    }
    fv_rng_shuffle(fv_rng_make(seed, epoch, "order"), samples, order);
    group_by_length(order, scratch, samples, rows, bucket_size(samples, rows, &o));
    batches->count = cut(offsets, order, samples, rows, &o);
    memcpy(scratch, order, room * sizeof *order);
    memcpy(scratch + room, offsets, room * sizeof *offsets);
    shuffle_batches(batches, scratch, scratch + room, scratch + 2 * room,
                    fv_rng_make(seed, epoch, "order of batches"));
    fvi_free(scratch);
    return true;
}

void fv_batches_free(fv_batches *batches)
{
    if (batches == NULL)
        return;
    fvi_free(batches->offsets);
    fvi_free(batches->order);
    *batches = (fv_batches){0};
}

/* ---- numbers of chosen samples --------------------------------------------------------------------------- */

const fv_segments *fv_pick_segments(fv_tape *t, const size_t *offsets, const size_t *samples,
                                    size_t count)
{
    size_t room;
    if (!fvi_add(count, 1, &room))
        return NULL;
    fv_segments *segments = fv_tape_alloc(t, 1, sizeof *segments);
    size_t *picked = fv_tape_alloc(t, room, sizeof *picked);
    if (segments == NULL || picked == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        picked[i + 1] = picked[i] + offsets[samples[i] + 1] - offsets[samples[i]];
    *segments = (fv_segments){count, picked};
    return segments;
}

const int32_t *fv_pick(fv_tape *t, const fv_ragged *column, const size_t *samples, size_t count)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t s = samples[i];
        if (s >= column->samples) {
            fv_refuse(t, "pick", "sample %zu of %zu", s, column->samples);
            return NULL;
        }
        all += column->offsets[s + 1] - column->offsets[s];
    }
    int32_t *picked = fv_tape_alloc(t, all > 0 ? all : 1, sizeof *picked);
    if (picked == NULL)
        return NULL;
    for (size_t i = 0, at = 0; i < count; i++) {
        const size_t first = column->offsets[samples[i]],
                     n = column->offsets[samples[i] + 1] - first;
        if (n > 0)
            memcpy(picked + at, column->values + first, n * sizeof *picked);
        at += n;
    }
    return picked;
}
