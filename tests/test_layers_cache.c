/* Decoding with a cache of keys and values: the bits of the whole-sequence pass, however the rows are cut. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/layers.h"
#include "tests/memory.h"

enum { D = 16, HEADS = 4, SAMPLES = 4 };

/* Samples of very different length, one of them empty. */
static const size_t offsets[SAMPLES + 1] = {0, 70, 71, 71, 340};
static const fv_segments segments = {SAMPLES, offsets};
enum { ROWS = 340 };

static const fv_multihead_opts kinds[] = {
    {.dropout = 0.5}, /* which FV_EVAL leaves out */
    {.kv_heads = 2, .relative_clip = 3, .relative_start = 1},
    {.kv_heads = 1, .left = 20, .no_bias = true},
    {.key_width = 3, .value_width = 5},
    {.no_values = true, .no_output = true},
    {.rotary = true, .rotary_scaling = 2, .kv_heads = 2},
    {.rotary = true, .rotary_interleaved = true, .rotary_width = 2, .left = 30},
    {.alibi = true, .softcap = 3},
    {.t5_buckets = 8, .t5_distance = 40},
    {.shaw_clip = 4, .no_shaw_values = true},
    {.shaw_clip = 2},
    {.normalizer = FV_NORMALIZE_SPARSEMAX},
    {.normalizer = FV_NORMALIZE_SIGMOID, .relative_clip = 2, .relative_start = 1},
    {.score = FV_SCORE_ADDITIVE},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* How many rows of sample s stand in step number n of a way to cut them. */
static size_t piece(int way, size_t s, size_t n)
{
    static const size_t pieces[] = {7, 1, 64, 3, 129, 2};
    if (way == 0)
        return 1;
    return n == 0 && s == 1 ? 0 : pieces[(n + s) % 6];
}

static fv_real *all_rows(fv_tape *t)
{
    fv_real *x = fv_tape_alloc(t, ROWS * D, sizeof *x);
    const fv_rng rng = fv_rng_make(5, 0, "rows");
    for (size_t i = 0; i < ROWS * D; i++)
        x[i] = (fv_real)(2 * fv_rng_uniform(rng, i) - 1);
    return x;
}

/* Step by step; the results stand where those of the whole pass do. Returns how many steps there were. */
static size_t decode(const fv_multihead *layer, int way, int threads, const fv_real *x, fv_real *y,
                     size_t width)
{
    fv_kv_cache cache;
    fv_error error = {FV_OK, ""};
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
    cr_assert(fv_kv_cache_init(&cache, layer, SAMPLES, 71, &error), "%s", error.text);
    size_t steps = 0, done[SAMPLES] = {0};
    for (bool more = true; more; steps++) {
        size_t at[SAMPLES + 1] = {0}, most = 0;
        const fv_segments next = {SAMPLES, at};
        fv_tape_begin(t, FV_EVAL, 1, steps);
        fv_real *rows = fv_tape_alloc(t, ROWS * D, sizeof *rows);
        for (size_t s = 0; s < SAMPLES; s++) {
            const size_t left = offsets[s + 1] - offsets[s] - done[s],
                         wanted = piece(way, s, steps), n = wanted < left ? wanted : left;
            memcpy(rows + at[s] * D, x + (offsets[s] + done[s]) * D, n * D * sizeof *rows);
            at[s + 1] = at[s] + n;
            most = done[s] + n > most ? done[s] + n : most;
        }
        if (most > cache.capacity) /* grows now and then */
            cr_assert(fv_kv_cache_reserve(&cache, 2 * most, &error), "%s", error.text);
        fv_var *out =
            fv_multihead_step(t, layer, fv_input(t, FV_SHAPE(at[SAMPLES], D), rows), &next, &cache);
        cr_assert_not_null(out, "%s", fv_tape_error(t)->text);
        more = false;
        for (size_t s = 0; s < SAMPLES; s++) {
            memcpy(y + (offsets[s] + done[s]) * width, out->value.data + at[s] * width,
                   (at[s + 1] - at[s]) * width * sizeof *y);
            done[s] += at[s + 1] - at[s];
            cr_assert_eq(cache.counts[s], done[s]);
            more |= done[s] < offsets[s + 1] - offsets[s];
        }
    }
    fv_kv_cache_free(&cache);
    fv_tape_free(t);
    return steps;
}

ParameterizedTestParameters(layers_cache, has_the_bits_of_the_whole)
{
    static int ids[KINDS];
    for (int i = 0; i < KINDS; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, KINDS);
}

ParameterizedTest(int *id, layers_cache, has_the_bits_of_the_whole)
{
    fv_params *params = fv_params_new(3);
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &kinds[*id]);
    cr_assert_neq(layer.heads, 0, "%s", fv_params_error(params)->text);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    const fv_real *x = all_rows(t);
    const fv_mask mask = {.queries = &segments, .causal = true};
    fv_var *whole = fv_multihead_forward(t, &layer, fv_input(t, FV_SHAPE(ROWS, D), x), &mask);
    cr_assert_not_null(whole, "%s", fv_tape_error(t)->text);
    const size_t width = fvi_columns(whole);
    fv_real *y = fv_tape_alloc(t, ROWS * width, sizeof *y);
    for (int way = 0; way < 2; way++) {
        memset(y, 0, ROWS * width * sizeof *y);
        const size_t steps = decode(&layer, way, 1 + way, x, y, width);
        cr_expect(way ? steps < 20 : steps == 269, "%zu steps", steps);
        cr_expect_arr_eq(y, whole->value.data, ROWS * width * sizeof *y, "way %d", way);
    }
    fv_tape_free(t);
    fv_params_free(params);
}

/* What a cache refuses leaves it as it was. */
Test(layers_cache, refuses)
{
    fv_error error = {FV_OK, ""};
    fv_params *params = fv_params_new(1);
    const fv_scope root = fv_root(params);
    const fv_multihead_opts zeros = {.add_zero_attn = true}, wide = {.key_width = 5};
    const fv_multihead layer = fv_multihead_init(fv_under(root, "a"), 4, 2, NULL),
                       zero = fv_multihead_init(fv_under(root, "b"), 4, 2, &zeros),
                       other = fv_multihead_init(fv_under(root, "c"), 4, 2, &wide), none = {0};
    fv_kv_cache cache;
    cr_expect_not(fv_kv_cache_init(&cache, &none, 2, 3, &error));
    cr_expect_str_eq(error.text, "cache: 0 heads, 2 samples of 3 rows");
    error.status = FV_OK;
    cr_expect_not(fv_kv_cache_init(&cache, &layer, 2, SIZE_MAX / 2, &error));
    cr_expect_not_null(strstr(error.text, "out of memory"));
    error.status = FV_OK;
    cr_assert(fv_kv_cache_init(&cache, &layer, 2, 3, &error), "%s", error.text);
    static const size_t two[] = {0, 1, 2}, many[] = {0, 0, 4}, one[] = {0, 2};
    const fv_segments of_two = {2, two}, of_four = {2, many}, of_one = {1, one};
    const struct {
        const fv_multihead *layer;
        const fv_segments *segments;
        size_t rows;
        fv_mode mode;
        const char *text;
    } wrong[] = {
        {&layer, &of_two, 2, FV_GRAD, "multihead_step: a cache has no gradients: in FV_EVAL only"},
        {&layer, &of_two, 2, FV_TRAIN, "multihead_step: a cache has no gradients: in FV_EVAL only"},
        {&zero, &of_two, 2, FV_EVAL,
         "multihead_step: a layer with keys of its own (bias_k, zeros) is not for steps"},
        {&other, &of_two, 2, FV_EVAL,
         "multihead_step: a cache of keys 4 and values 4 wide, made for another layer"},
        {&layer, &of_one, 2, FV_EVAL, "multihead_step: 1 segments, the cache has 2 samples"},
        {&layer, NULL, 2, FV_EVAL, "multihead_step: 0 segments, the cache has 2 samples"},
        {&layer, &of_two, 3, FV_EVAL, NULL},
        {&layer, &of_four, 4, FV_EVAL,
         "multihead_step: sample 1 would have 5 rows, the cache has room for 3"},
        {&none, &of_two, 2, FV_EVAL, "use: no parameter (the set's error says why)"},
    };
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    cr_assert_not_null(
        fv_multihead_step(t, &layer, input_numbers(t, FV_SHAPE(2, 4), 3), &of_two, &cache));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_tape_begin(t, wrong[i].mode, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(wrong[i].rows, 4), 3);
        cr_expect_null(fv_multihead_step(t, wrong[i].layer, x, wrong[i].segments, &cache));
        if (wrong[i].text != NULL)
            cr_expect_str_eq(fv_tape_error(t)->text, wrong[i].text);
        cr_expect_not(fv_tape_ok(t));
        cr_expect(cache.counts[0] == 1 && cache.counts[1] == 1);
    }
    fv_kv_cache_free(&cache);
    fv_tape_free(t);
    fv_params_free(params);
}

/* A cache and a step whose n-th request for memory fails, for all n: an error, nothing lost, no rows added. */
Test(layers_cache, out_of_memory)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead layer = fv_multihead_init(fv_root(params), 4, 2, NULL);
    static const size_t at[] = {0, 1, 3};
    const fv_segments two = {2, at};
    const size_t before = test_blocks();
    size_t n = 0;
    for (bool done = false; !done && n < 100;) {
        fv_error error = {FV_OK, ""};
        fv_kv_cache cache = {.samples = 0};
        test_fail_after(++n);
        fv_tape *t = fv_tape_new(NULL);
        const bool made = fv_kv_cache_init(&cache, &layer, 2, 2, &error);
        if (t != NULL && made) {
            fv_tape_begin(t, FV_EVAL, 1, 1);
            const fv_real x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
            fv_var *y = fv_multihead_step(t, &layer, fv_input(t, FV_SHAPE(3, 4), x), &two, &cache);
            done = y != NULL && fv_kv_cache_reserve(&cache, 5, &error);
            cr_expect_eq(cache.counts[0], y != NULL);
            cr_expect(done ? cache.capacity == 5 : y != NULL || !fv_tape_ok(t));
        }
        test_fail_after(0);
        cr_expect(made || t == NULL || error.status == FV_FAILED);
        fv_kv_cache_free(&cache);
        fv_tape_free(t);
        cr_expect_eq(test_blocks(), before, "request %zu", n);
    }
    cr_expect(n > 5 && n < 100, "%zu requests", n);
    fv_params_free(params);
}
