/* Times whole steps of fv_fit on a small part-of-speech tagger: 8,000 words, width 64, two blocks, 32
 * sentences of 8 to 32 words, AdamW. Prints one JSON line.
 *
 * The loss function of a batch's first shard takes the time, so from one call to the next lies one step
 * of fv_fit: batch, shards, forward, backward, sum over shards, update. */
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "fovea.h"

enum {
    WORDS = 8000,
    WIDTH = 64,
    LONGEST = 32,
    HEADS = 4,
    HIDDEN = 256,
    BLOCKS = 2,
    TAGS = 17,
    SENTENCES = 32, /* of a batch */
    BATCHES = 8,
    SAMPLES = SENTENCES * BATCHES,
    ROWS = SAMPLES * LONGEST, /* at most */
    WARM_UP = 20              /* steps that are not counted */
};

static const char usage[] = "usage: tagger_step [--threads N] [--shards N] [--steps N] [--seconds "
                            "X] [--data FILE.npz] [--check]\n"
                            "  --data  weights by name, and in meta.json the arrays \"lengths\" "
                            "[256], \"ids\" and \"tags\";\n"
                            "          without it both are made up\n"
                            "  --check  8 steps, one a batch: only the losses count\n";

typedef struct {
    double wall, cpu; /* seconds */
} stamp;

typedef struct {
    size_t offsets[SAMPLES + 1];
    int32_t ids[ROWS], tags[ROWS];
    fv_embedding words;
    fv_positions positions;
    fv_block blocks[BLOCKS];
    fv_norm norm;
    fv_linear output;
    stamp *stamps; /* [steps + 1] */
    size_t steps, taken;
    double seconds;
    volatile sig_atomic_t *stop;
} bench;

static double clock_of(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the model --------------------------------------------------------------------------------- */

static void make_model(bench *b, fv_params *params)
{
    const fv_scope root = fv_root(params);
    const fv_block_opts block = {.hidden = HIDDEN, .activation = FV_ACT_GELU};
    b->words = fv_embedding_init(fv_under(root, "words"), WORDS, WIDTH, NULL);
    b->positions = fv_positions_init(fv_under(root, "positions"), LONGEST, WIDTH, NULL);
    for (int i = 0; i < BLOCKS; i++)
        b->blocks[i] = fv_block_init(fv_under(root, "blocks.%d", i), WIDTH, HEADS, &block);
    b->norm = fv_norm_init(fv_under(root, "norm"), WIDTH);
    b->output = fv_linear_init(fv_under(root, "output"), WIDTH, TAGS, NULL);
    for (size_t i = 0; i < fv_params_count(params); i++) /* as torch.optim.AdamW does by itself */
        fv_params_at(params, i)->no_decay = false;
}

static void take_time(bench *b)
{
    if (b->taken > b->steps)
        return;
    b->stamps[b->taken] = (stamp){clock_of(CLOCK_MONOTONIC), clock_of(CLOCK_PROCESS_CPUTIME_ID)};
    const double since = b->stamps[b->taken].wall - b->stamps[0].wall;
    b->taken++;
    if (b->taken > b->steps || (b->taken > WARM_UP + 5 && since > b->seconds))
        *b->stop = 1;
}

static fv_var *loss(const void *model, fv_tape *t, const size_t *samples, size_t count,
                    double *weight)
{
    const bench *b = model;
    const fv_ragged ids = {SAMPLES, b->offsets, b->ids}, tags = {SAMPLES, b->offsets, b->tags};
    const fv_segments *each = fv_pick_segments(t, b->offsets, samples, count);
    const fv_mask mask = {.queries = each};
    *weight = (double)fv_segments_rows(each);
    fv_var *x = fv_embedding_forward(t, &b->words, fv_pick(t, &ids, samples, count),
                                     fv_segments_rows(each));
    x = fv_positions_forward(t, &b->positions, x, each);
    for (int i = 0; i < BLOCKS; i++)
        x = fv_block_forward(t, &b->blocks[i], x, &mask);
    x = fv_linear_forward(t, &b->output, fv_norm_forward(t, &b->norm, x));
    return fv_cross_entropy_sum(t, x, fv_pick(t, &tags, samples, count), NULL, NULL);
}

/* The clock is the one thing here that changes in a step, and one thread at a time runs a first shard. */
static bench *clock_owner;

static fv_var *timed_loss(const void *model, fv_tape *t, const size_t *samples, size_t count,
                          double *weight)
{
    if (samples[0] % SENTENCES == 0)
        take_time(clock_owner);
    return loss(model, t, samples, count, weight);
}

/* ---- the data ---------------------------------------------------------------------------------- */

static void make_up(bench *b)
{
    const fv_rng rng = fv_rng_make(7, 0, "sentences");
    for (size_t s = 0; s < SAMPLES; s++) /* every batch has the same lengths */
        b->offsets[s + 1] = b->offsets[s] + 8 + fv_rng_below(rng, s % SENTENCES, LONGEST - 7);
    for (size_t r = 0; r < b->offsets[SAMPLES]; r++) {
        b->ids[r] = 1 + (int32_t)fv_rng_below(rng, 2 * r + SENTENCES, WORDS - 1);
        b->tags[r] = (int32_t)fv_rng_below(rng, 2 * r + SENTENCES + 1, TAGS);
    }
}

/* Copies a JSON array of count whole numbers, each low .. high. */
static bool numbers(const json_t *from, size_t count, json_int_t low, json_int_t high, int32_t *to)
{
    if (json_array_size(from) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *x = json_array_get(from, i);
        if (!json_is_integer(x) || json_integer_value(x) < low || json_integer_value(x) > high)
            return false;
        to[i] = (int32_t)json_integer_value(x);
    }
    return true;
}

static bool read_sentences(bench *b, const char *path, const char *text, fv_error *error)
{
    int32_t lengths[SAMPLES];
    json_t *json = json_loads(text, 0, NULL);
    bool ok = numbers(json_object_get(json, "lengths"), SAMPLES, 1, LONGEST, lengths);
    for (size_t s = 0; ok && s < SAMPLES; s++)
        b->offsets[s + 1] = b->offsets[s] + (size_t)lengths[s];
    const size_t rows = b->offsets[SAMPLES];
    ok = ok && numbers(json_object_get(json, "ids"), rows, 0, WORDS - 1, b->ids) &&
         numbers(json_object_get(json, "tags"), rows, 0, TAGS - 1, b->tags);
    json_decref(json);
    return ok || fv_fail(error, FV_DATA,
                         "%s: meta.json: expected lengths [%d] of 1 to %d, and ids and tags, one "
                         "a word",
                         path, SAMPLES, LONGEST);
}

static bool read_data(bench *b, fv_params *params, const char *path, fv_error *error)
{
    fv_checkpoint *file = fv_checkpoint_open(path, error);
    const bool ok = file != NULL && fv_checkpoint_restore(file, params, NULL, error) &&
                    read_sentences(b, path, fv_checkpoint_json(file), error);
    fv_checkpoint_close(file);
    return ok;
}

/* ---- figures ----------------------------------------------------------------------------------- */

/* The mean loss of the first batch before any step. */
static bool first_loss(const bench *b, double *mean, fv_error *error)
{
    size_t samples[SENTENCES];
    double weight = 0;
    for (size_t s = 0; s < SENTENCES; s++)
        samples[s] = s;
    fv_tape *t = fv_tape_new(NULL);
    if (t == NULL)
        return fv_fail(error, FV_FAILED, "out of memory");
    fv_tape_begin(t, FV_EVAL, 0, 0);
    const fv_var *y = loss(b, t, samples, SENTENCES, &weight);
    if (y != NULL)
        *mean = (double)y->value.data[0] / weight;
    else
        fv_fail(error, FV_FAILED, "%s", fv_tape_error(t)->text);
    fv_tape_free(t);
    return y != NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t count)
{
    qsort(x, count, sizeof *x, ascending);
    return count ? x[count / 2] : 0;
}

static void print(const bench *b, const fv_fit_opts *opts, double first, const fv_fit_result *fit)
{
    struct rusage used;
    const size_t counted = b->taken > WARM_UP + 1 ? b->taken - 1 - WARM_UP : 0;
    double *wall = calloc(counted + 1, sizeof *wall), *cpu = calloc(counted + 1, sizeof *cpu);
    for (size_t i = 0; wall != NULL && cpu != NULL && i < counted; i++) {
        const stamp *s = &b->stamps[WARM_UP + i];
        wall[i] = 1e3 * (s[1].wall - s[0].wall);
        cpu[i] = 1e3 * (s[1].cpu - s[0].cpu);
    }
    getrusage(RUSAGE_SELF, &used);
    if (wall != NULL && cpu != NULL) {
        const double middle = median(wall, counted);
        printf("{\"name\": \"tagger_step\", \"threads\": %d, \"shards\": %d, \"ms_median\": %.3f, "
               "\"ms_min\": %.3f, \"cpu_ms_median\": %.3f, \"peak_rss_mb\": %.1f, \"tape_mb\": "
               "%.1f, \"steps\": %zu, \"loss_first\": %.9g, \"loss_epoch\": %.9g, \"rows\": %zu, "
               "\"version\": \"" FV_VERSION "\"}\n",
               opts->threads, opts->shards, middle, wall[0], median(cpu, counted),
               (double)used.ru_maxrss / 1024, (double)fit->tape_bytes / (1 << 20), counted, first,
               fit->loss, b->offsets[SENTENCES]);
    }
    free(wall);
    free(cpu);
}

static bool parse(int argc, char **argv, bench *b, fv_fit_opts *opts, const char **data)
{
    static const struct option known[] = {{"threads", required_argument, NULL, 't'},
                                          {"shards", required_argument, NULL, 'h'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"data", required_argument, NULL, 'd'},
                                          {"check", no_argument, NULL, 'c'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 't')
            opts->threads = atoi(optarg);
        else if (option == 'h')
            opts->shards = atoi(optarg);
        else if (option == 'n')
            b->steps = (size_t)atoi(optarg);
        else if (option == 's')
            b->seconds = atof(optarg);
        else if (option == 'd')
            *data = optarg;
        else if (option == 'c')
            opts->epochs = 1;
        else
            return false;
    }
    return optind == argc && b->steps > 0 && b->steps < 1000000;
}

int main(int argc, char **argv)
{
    static bench b = {.steps = 2000, .seconds = 6};
    static volatile sig_atomic_t stop;
    fv_fit_opts opts = {.shards = 4,
                        .threads = fv_threads_available(),
                        .batch = {.batch_samples = SENTENCES, .keep_order = true},
                        .stop = &stop};
    const char *data = NULL;
    if (!parse(argc, argv, &b, &opts, &data))
        return fputs(usage, stderr), FV_USAGE;
    b.stop = &stop;
    b.steps += WARM_UP;
    if (opts.epochs == 0)
        opts.epochs = (int)(b.steps / BATCHES + 1);
    clock_owner = &b;
    fv_error error = {FV_OK, ""};
    fv_fit_result fit = {0};
    fv_params *params = fv_params_new(1);
    b.stamps = calloc(b.steps + 1, sizeof *b.stamps);
    if (params == NULL || b.stamps == NULL)
        return fputs("tagger_step: out of memory\n", stderr), FV_FAILED;
    make_model(&b, params);
    if (data == NULL)
        make_up(&b);
    double first = 0;
    const fv_task task = {
        .model = &b, .samples = SAMPLES, .offsets = b.offsets, .loss = timed_loss};
    if ((data == NULL || read_data(&b, params, data, &error)) && first_loss(&b, &first, &error) &&
        (fv_fit(params, &task, &opts, &fit, &error) || error.status == FV_INTERRUPTED)) {
        error.status = FV_OK;
        print(&b, &opts, first, &fit);
    } else {
        fprintf(stderr, "tagger_step: %s\n", error.text);
    }
    free(b.stamps);
    fv_params_free(params);
    return (int)error.status;
}
