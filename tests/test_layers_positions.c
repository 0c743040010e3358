/* Positions: tables added or put beside, and what attention adds by distance, against plain definitions. */
#include "tests/layers.h"

static const size_t offsets[] = {0, 4, 5, 9};
static const fv_segments segments = {3, offsets};
enum { ROWS = 9, D = 8, HEADS = 2, WIDTH = 4 };

/* sin(p / base^(2i/d)) at 2i, cos at 2i + 1; an odd width ends with a sine. */
Test(layers_positions, sines_of_any_base_and_width)
{
    fv_params *params = fv_params_new(1);
    const fv_positions_opts opts = {.sinusoidal = true, .base = 50};
    const fv_positions odd = fv_positions_init(fv_root(params), 6, 5, &opts);
    cr_expect(odd.weight->frozen);
    for (size_t p = 0; p < 6; p++)
        for (size_t i = 0; 2 * i < 5; i++) {
            const double angle = (double)p * pow(50, -2.0 * (double)i / 5);
            const fv_real *row = odd.weight->value.data + p * 5 + 2 * i;
            cr_expect_float_eq((double)fv_re(row[0]), sin(angle), 1e-6);
            if (2 * i + 1 < 5)
                cr_expect_float_eq((double)fv_re(row[1]), cos(angle), 1e-6);
        }
    const fv_positions_opts bad = {.base = -1};
    cr_expect_null(fv_positions_init(fv_under(fv_root(params), "p"), 6, 5, &bad).weight);
    cr_expect_str_eq(fv_params_error(params)->text, "p: positions: the base must be above 0");
    fv_params_free(params);
}

/* Beside the row instead of added; from a start of each sample; too far is an error. */
Test(layers_positions, beside_and_after)
{
    fv_params *params = fv_params_new(1);
    const fv_positions_opts beside = {.concatenated = true};
    const fv_positions add = fv_positions_init(fv_under(fv_root(params), "a"), 7, D, NULL),
                       put = fv_positions_init(fv_under(fv_root(params), "b"), 7, 4, &beside);
    static const size_t start[] = {3, 0, 2};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
    fv_var *added = fv_positions_after(t, &add, x, &segments, start);
    fv_var *wide = fv_positions_forward(t, &put, x, &segments);
    fv_var *late = fv_positions_after(t, &put, x, &segments, start);
    cr_assert(fv_tape_ok(t), "%s", fv_tape_error(t)->text);
    cr_assert(fv_shape_equal(wide->value.shape, FV_SHAPE(ROWS, D + 4)));
    for (size_t s = 0; s < 3; s++)
        for (size_t r = offsets[s]; r < offsets[s + 1]; r++) {
            const size_t p = r - offsets[s];
            for (size_t c = 0; c < D; c++) {
                const fv_real at = x->value.data[r * D + c];
                cr_expect(fv_re(added->value.data[r * D + c]) ==
                          fv_re(at + add.weight->value.data[(start[s] + p) * D + c]));
                cr_expect(fv_re(wide->value.data[r * (D + 4) + c]) == fv_re(at));
            }
            const fv_real *table = put.weight->value.data;
            cr_expect_arr_eq(wide->value.data + r * (D + 4) + D, table + p * 4, 4 * sizeof *table);
            cr_expect_arr_eq(late->value.data + r * (D + 4) + D, table + (start[s] + p) * 4,
                             4 * sizeof *table);
        }
    static const size_t far[] = {4, 0, 0};
    cr_expect_null(fv_positions_after(t, &add, x, &segments, far));
    cr_expect_str_eq(fv_tape_error(t)->text,
                     "positions: segment 0 has positions 4 .. 7, the table 7");
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- by distance ------------------------------------------------------------------------------------------- */

/* Slopes of eight heads are 1/2 .. 1/256; of twelve, these and every other one of sixteen. */
Test(layers_positions, alibi_slopes)
{
    fv_params *params = fv_params_new(1);
    for (size_t heads = 1; heads <= 12; heads++) {
        const fv_multihead_opts opts = {.alibi_learned = heads == 8, .alibi = true};
        const fv_multihead layer =
            fv_multihead_init(fv_under(fv_root(params), "%zu", heads), 12 * heads, heads, &opts);
        const size_t low = heads >= 8 ? 8 : heads >= 4 ? 4 : heads >= 2 ? 2 : 1;
        cr_expect_eq(layer.slopes->frozen, heads != 8);
        for (size_t h = 0; h < heads; h++) {
            const double wanted =
                h < low ? exp2(-8.0 * (double)(h + 1) / (double)low)
                        : exp2(-8.0 * (double)(2 * (h - low) + 1) / (2.0 * (double)low));
            cr_expect_float_eq((double)fv_re(layer.slopes->value.data[h]), wanted, 1e-7,
                               "head %zu of %zu", h, heads);
        }
    }
    fv_params_free(params);
}

/* The logarithm of a power stays whole, which rounding alone would not: distance 10 of 160 in 10 buckets.
 * Which bucket a distance falls into shows in the score of its pair, read off the weights of a row that sees
 * two keys: itself and the one at that distance. */
static double score_at(const fv_multihead *layer, fv_tape *t, size_t rows, long distance)
{
    const size_t i = distance < 0 ? rows - 1 : 0, j = (size_t)((long)i + distance);
    unsigned char *visible = fv_tape_alloc(t, rows * rows, 1);
    visible[i * rows + i] = visible[i * rows + j] = 1;
    const fv_mask mask = {.visible = visible};
    fv_real *zeros = fv_tape_alloc(t, rows, sizeof *zeros);
    fv_var *y = fv_multihead_forward(t, layer, fv_input(t, FV_SHAPE(rows, 1), zeros), &mask);
    const fv_tensor w = fv_multihead_weights(t, layer, y, 0, true);
    cr_assert_not_null(w.data, "%s", fv_tape_error(t)->text);
    return log((double)fv_re(w.data[i * rows + j] / w.data[i * rows + i]));
}

Test(layers_positions, t5_buckets)
{
    static const struct {
        bool causal;
        long distance;
        int bucket;
        size_t buckets, farthest; /* 0: 32 and 128 */
    } known[] = {{false, 1, 17, 0, 0},    {false, -1, 1, 0, 0},   {false, 7, 23, 0, 0},
                 {false, 8, 24, 0, 0},    {false, 16, 26, 0, 0},  {false, 32, 28, 0, 0},
                 {false, -64, 14, 0, 0},  {false, 127, 31, 0, 0}, {false, 300, 31, 0, 0},
                 {false, -300, 15, 0, 0}, {false, -11, 8, 0, 0},  {false, -12, 9, 0, 0},
                 {true, 5, 0, 0, 0},      {true, -5, 5, 0, 0},    {true, -15, 15, 0, 0},
                 {true, -16, 16, 0, 0},   {true, -32, 21, 0, 0},  {true, -128, 31, 0, 0},
                 {true, -300, 31, 0, 0},  {true, -64, 26, 0, 0},  {true, -10, 6, 10, 160},
                 {true, -9, 5, 10, 160}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fv_params *params = fv_params_new(1);
        const size_t buckets = known[i].buckets ? known[i].buckets : 32;
        const fv_multihead_opts opts = {
            .t5_buckets = buckets, .t5_distance = known[i].farthest, .t5_causal = known[i].causal};
        const fv_multihead layer = fv_multihead_init(fv_root(params), 1, 1, &opts);
        cr_assert_str_eq(layer.buckets->name, "relative_attention_bias.weight");
        for (size_t b = 0; b < buckets; b++)
            layer.buckets->value.data[b] = (fv_real)(0.25 * (double)b);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        cr_expect_float_eq(score_at(&layer, t, 310, known[i].distance), 0.25 * known[i].bucket,
                           1e-4, "distance %ld", known[i].distance);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

/* Turns the pairs of one head by a position. */
static void turn(const fv_multihead_opts *o, double *x, double position)
{
    const size_t width = o->rotary_width ? o->rotary_width : WIDTH;
    const double base = o->rotary_base > 0 ? o->rotary_base : 10000,
                 scaling = o->rotary_scaling > 0 ? o->rotary_scaling : 1;
    for (size_t i = 0; i < width / 2; i++) {
        const size_t a = o->rotary_interleaved ? 2 * i : i,
                     b = o->rotary_interleaved ? 2 * i + 1 : i + width / 2;
        const double angle = position / scaling * pow(base, -2.0 * (double)i / (double)width);
        const double first = x[a], second = x[b];
        x[a] = first * cos(angle) - second * sin(angle);
        x[b] = first * sin(angle) + second * cos(angle);
    }
}

/* The layer's result without W_O and biases, from its parameters by the definition, causal. */
static void define(const fv_multihead *l, const fv_real *x, double *y)
{
    const double scale = 1 / sqrt(WIDTH);
    double p[ROWS][3 * D];
    for (size_t r = 0; r < ROWS; r++)
        for (size_t o = 0; o < 3 * D; o++) {
            p[r][o] = 0;
            for (size_t c = 0; c < D; c++)
                p[r][o] += (double)fv_re(l->in_proj_weight->value.data[o * D + c] * x[r * D + c]);
        }
    for (size_t s = 0; l->how.rotary && s < 3; s++)
        for (size_t r = offsets[s]; r < offsets[s + 1]; r++)
            for (size_t h = 0; h < 2 * HEADS; h++)
                turn(&l->how, p[r] + h * WIDTH, (double)(r - offsets[s]));
    for (size_t s = 0; s < 3; s++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t i = offsets[s]; i < offsets[s + 1]; i++) {
                double sum = 0, out[WIDTH] = {0};
                for (size_t j = offsets[s]; j <= i; j++) {
                    const long clip = l->how.shaw_clip, far = (long)j - (long)i,
                               at = (far < -clip  ? -clip
                                     : far > clip ? clip
                                                  : far) +
                                    clip;
                    double score = 0;
                    for (size_t c = 0; c < WIDTH; c++) {
                        double key = p[j][D + h * WIDTH + c];
                        if (l->relative_keys != NULL)
                            key +=
                                (double)fv_re(l->relative_keys->value.data[at * WIDTH + (long)c]);
                        score += scale * p[i][h * WIDTH + c] * key;
                    }
                    if (l->slopes != NULL)
                        score -= (double)fv_re(l->slopes->value.data[h]) * (double)-far;
                    sum += exp(score);
                    for (size_t c = 0; c < WIDTH; c++) {
                        double value = p[j][2 * D + h * WIDTH + c];
                        if (l->relative_values != NULL)
                            value +=
                                (double)fv_re(l->relative_values->value.data[at * WIDTH + (long)c]);
                        out[c] += exp(score) * value;
                    }
                }
                for (size_t c = 0; c < WIDTH; c++)
                    y[i * D + h * WIDTH + c] = out[c] / sum;
            }
}

Test(layers_positions, inside_attention_as_defined)
{
    const fv_multihead_opts opts[] = {
        {.no_bias = true, .no_output = true, .alibi = true},
        {.no_bias = true, .no_output = true, .shaw_clip = 2, .no_shaw_values = true},
        {.no_bias = true, .no_output = true, .shaw_clip = 2, .alibi_learned = true},
        {.no_bias = true, .no_output = true, .rotary = true, .rotary_base = 30},
        {.no_bias = true, .no_output = true, .rotary = true, .rotary_interleaved = true},
        {.no_bias = true,
         .no_output = true,
         .rotary = true,
         .rotary_width = 2,
         .rotary_scaling = 0.3},
    };
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
        double wanted[ROWS * D];
        fv_params *params = fv_params_new(1);
        const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &opts[i]);
        fill_times(params, 3);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
        const fv_mask mask = {.queries = &segments, .causal = true};
        fv_var *y = fv_multihead_forward(t, &layer, x, &mask);
        cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
        define(&layer, x->value.data, wanted);
        expect_close("y", ROWS * D, y->value.data, wanted);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

/* A query's position counts the mask's offset, and scores depend on distances only: so rows whose offset is moved
 * along with their keys' positions have the same result. Here keys 2 .. 3 asked from 2 on are keys 0 .. 1. */
Test(layers_positions, rotary_scores_depend_on_distances)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts opts = {.rotary = true, .rotary_base = 3, .no_output = true};
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &opts);
    fill_times(params, 3);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(4, D), 3), *late = fv_slice(t, x, 0, (fv_range){2, 4, 1});
    static const unsigned char last[] = {0, 0, 1, 1, 0, 0, 1, 1};
    const fv_mask behind = {.align_end = true, .visible = last}, alone = {.causal = false},
                  wrong = {.offset = 1};
    fv_var *a = fv_multihead_cross(t, &layer, late, x, x, &behind);
    fv_var *b = fv_multihead_cross(t, &layer, late, late, late, &alone);
    fv_var *c = fv_multihead_cross(t, &layer, late, late, late, &wrong);
    cr_assert(fv_tape_ok(t), "%s", fv_tape_error(t)->text);
    double wanted[2 * D], farthest = 0;
    for (size_t i = 0; i < 2 * D; i++) {
        wanted[i] = (double)fv_re(b->value.data[i]);
        farthest = fmax(farthest, fabs((double)fv_re(c->value.data[i]) - wanted[i]));
    }
    expect_close("y", 2 * D, a->value.data, wanted);
    cr_expect_gt(farthest, 1e-3, "an offset of the queries alone must show");
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- gradient checks --------------------------------------------------------------------------------------- */

#if defined(FV_F64) || defined(FV_COMPLEX)
typedef struct {
    fv_positions positions;
    fv_multihead heads;
    fv_real x[ROWS * D];
    bool after;
} model;

static fv_var *run(fv_tape *t, void *context)
{
    static const size_t start[] = {1, 3, 0};
    model *m = context;
    const fv_mask mask = {.queries = &segments};
    fv_var *x = fv_constant(t, FV_SHAPE(ROWS, D), m->x);
    if (m->heads.heads > 0)
        return fv_multihead_forward(t, &m->heads, x, &mask);
    return fv_positions_after(t, &m->positions, x, &segments, m->after ? start : NULL);
}

static void check_gradients(fv_params *params, model *m, const char *what)
{
    fv_gradcheck_result result;
    cr_assert_eq(fv_params_error(params)->status, FV_OK, "%s", fv_params_error(params)->text);
    for (size_t i = 0; i < ROWS * D; i++)
        m->x[i] = number(i, 3);
    fill_times(params, 3);
    cr_expect(fv_gradcheck_params(run, params, m, NULL, &result), "%s: %s", what,
              result.error.text);
    fv_params_free(params);
}

Test(layers_positions, gradients_of_tables)
{
    for (int which = 0; which < 4; which++) {
        const fv_positions_opts opts = {.concatenated = which % 2};
        fv_params *params = fv_params_new(1);
        model m = {.positions = fv_positions_init(fv_root(params), 5, D, &opts),
                   .after = which > 1};
        check_gradients(params, &m, "a table");
    }
}

Test(layers_positions, gradients_by_distance)
{
    const fv_multihead_opts opts[] = {{.alibi_learned = true},
                                      {.t5_buckets = 4, .t5_distance = 3},
                                      {.t5_buckets = 4, .t5_distance = 3, .t5_causal = true},
                                      {.shaw_clip = 2, .no_shaw_values = true},
                                      {.shaw_clip = 2, .kv_heads = 1, .alibi = true},
                                      {.shaw_clip = 1, .add_bias_kv = true},
                                      {.rotary = true, .kv_heads = 1, .add_bias_kv = true},
                                      {.rotary = true, .rotary_width = 2, .relative_clip = 2}};
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
        char what[40];
        snprintf(what, sizeof what, "options %zu", i);
        fv_params *params = fv_params_new(1);
        model m = {.heads = fv_multihead_init(fv_root(params), D, HEADS, &opts[i])};
        check_gradients(params, &m, what);
    }
}
#endif
