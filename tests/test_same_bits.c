/* The same bits for any number of threads, with AVX2 and AVX-512, for a sentence alone or in any batch;
 * and what is hidden from a row never reaches it. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"
#include "tests/small_model.h"

static const int everything[SMALL_SENTENCES] = {0, 1, 2, 3, 4, 5, 6};
enum { WIDTH = 72 }; /* no multiple of 16, so that vectors have a rest */

/* Skips the test, with the reason, when this build or processor lacks the instruction set. */
static void need_isa(const char *name)
{
    for (int i = 0; i <= (int)fvi_isa_best(); i++)
        if (strcmp(fvi_isa_name((fvi_isa)i), name) == 0)
            return;
    cr_skip_test("no %s in this build or processor", name);
}

/* ---- single ops ------------------------------------------------------------------------------------- */

/* Value and gradients of an op's sample, as one digest of all values on the tape. */
static uint64_t digest_sample(const fv_tape_opts *opts, fvi_op_id op, int which)
{
    fv_tape *t = fv_tape_new(opts);
    fv_sampler s = {.tape = t, .seed = 4, .only = -1, .only_index = SIZE_MAX};
    fv_tape_begin(t, FV_TRAIN, 4, 0);
    fv_var *y = t->ops->op[op]->sample(&s, which);
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)), "%s", fv_tape_error(t)->text);
    uint64_t sum = 0;
    for (const fv_var *v = t->last; v != NULL; v = v->previous) {
        sum = 31 * sum + fvi_hash(v->value.data, fvi_count(v) * sizeof(fv_real));
        if (v->grad != NULL)
            sum = 31 * sum + fvi_hash(v->grad, fvi_count(v) * sizeof(fv_real));
    }
    fv_tape_free(t);
    return sum;
}

static void compare_samples(const fv_tape_opts *a, const fv_tape_opts *b)
{
    const fvi_ops *table = fvi_ops_for(fvi_isa_best());
    for (int op = 0; op < FVI_OP_COUNT; op++)
        for (int which = 0; which < table->op[op]->samples; which++)
            cr_expect_eq(digest_sample(a, (fvi_op_id)op, which),
                         digest_sample(b, (fvi_op_id)op, which), "%s, sample %d",
                         table->op[op]->name, which);
}

Test(same_bits, ops_with_two_threads)
{
    compare_samples(&(fv_tape_opts){.threads = 1}, &(fv_tape_opts){.threads = 2});
}

Test(same_bits, ops_with_avx2_and_avx512)
{
    need_isa("avx512");
    compare_samples(&(fv_tape_opts){.isa = "avx2"}, &(fv_tape_opts){.isa = "avx512"});
}

/* ---- a whole model ------------------------------------------------------------------------------------ */

typedef struct {
    fv_params *params;
    small_model model;
} built;

static built build(double dropout)
{
    built b = {.params = fv_params_new(9)};
    b.model = small_model_init(b.params, WIDTH, dropout);
    for (size_t i = 0; i < fv_params_count(b.params); i++) { /* no zeros and ones to hide behind */
        fv_param *p = fv_params_at(b.params, i);
        const fv_rng rng = fv_rng_make(9, 1, p->name);
        for (size_t k = 0; k < fv_shape_count(p->value.shape); k++)
            p->value.data[k] += (fv_real)(0.1 * fv_rng_normal(rng, k));
    }
    cr_assert_eq(fv_params_error(b.params)->status, FV_OK);
    return b;
}

/* One training step: scores and all gradients compared with those of another tape. */
static void compare_steps(const fv_tape_opts *a, const fv_tape_opts *b)
{
    static small_batch batch;
    small_batch_make(&batch, SMALL_SENTENCES, everything);
    const built m = build(0.1);
    fv_tape *t[2] = {fv_tape_new(a), fv_tape_new(b)};
    for (int i = 0; i < 2; i++) {
        fv_tape_begin(t[i], FV_TRAIN, 5, 6);
        cr_assert(fv_backward(t[i], small_model_loss(t[i], &m.model, &batch)), "%s",
                  fv_tape_error(t[i])->text);
    }
    fv_var *v[2] = {t[0]->last, t[1]->last};
    const char *first = NULL;
    size_t values = 0;
    for (; v[0] != NULL && v[1] != NULL; v[0] = v[0]->previous, v[1] = v[1]->previous, values++)
        if (memcmp(v[0]->value.data, v[1]->value.data, fvi_count(v[0]) * sizeof(fv_real)) != 0)
            first = v[0]->op ? v[0]->op->name : v[0]->name;
    cr_expect(v[0] == v[1]);
    cr_expect_geq(values, 50);
    cr_expect_null(first, "the first value that differs is of %s", first);
    for (fv_var *x = t[0]->last, *y = t[1]->last; x != NULL; x = x->previous, y = y->previous) {
        cr_expect_eq(x->grad == NULL, y->grad == NULL);
        if (x->grad != NULL && y->grad != NULL)
            cr_expect_arr_eq(x->grad, y->grad, fvi_count(x) * sizeof(fv_real), "gradient of %s",
                             x->op ? x->op->name : x->name);
    }
    for (size_t i = 0; i < fv_params_count(m.params); i++) {
        const fv_param *p = fv_params_at(m.params, i);
        const int32_t *rows[2];
        const fv_real *grad[2];
        const size_t touched = fv_touched(t[0], p, &rows[0], &grad[0]);
        cr_assert_eq(touched, fv_touched(t[1], p, &rows[1], &grad[1]));
        cr_assert(touched > 0 || fv_param_grad(t[0], p) != NULL, "%s has no gradient", p->name);
        if (touched == 0)
            continue;
        cr_expect_arr_eq(rows[0], rows[1], touched * sizeof(int32_t), "rows of %s", p->name);
        cr_expect_arr_eq(grad[0], grad[1], touched * WIDTH * sizeof(fv_real), "%s", p->name);
    }
    fv_tape_free(t[0]);
    fv_tape_free(t[1]);
    fv_params_free(m.params);
}

Test(same_bits, step_with_two_threads)
{
    compare_steps(&(fv_tape_opts){.threads = 1}, &(fv_tape_opts){.threads = 2});
}

Test(same_bits, step_with_three_threads)
{
    compare_steps(&(fv_tape_opts){.threads = 1}, &(fv_tape_opts){.threads = 3});
}

Test(same_bits, step_with_eight_threads)
{
    compare_steps(&(fv_tape_opts){.threads = 1}, &(fv_tape_opts){.threads = 8});
}

Test(same_bits, step_with_avx2_and_avx512)
{
    need_isa("avx512");
    compare_steps(&(fv_tape_opts){.isa = "avx2"}, &(fv_tape_opts){.isa = "avx512"});
    compare_steps(&(fv_tape_opts){.isa = "avx2", .threads = 2}, &(fv_tape_opts){.isa = "avx512"});
}

/* ---- batches ------------------------------------------------------------------------------------------- */

/* The scores of a batch, in memory of the tape. */
static const fv_real *scores(fv_tape *t, const small_model *m, const small_batch *b, bool causal)
{
    fv_tape_begin(t, FV_EVAL, 1, 1);
    const fv_var *y = small_model_forward(t, m, b, causal);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    return y->value.data;
}

static void compare_batches(const fv_tape_opts *opts)
{
    static const int orders[][SMALL_SENTENCES] = {
        {0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {4, 6, 3, 1, 0, 2, 5}, {1, 4, 5, 6, 0, 3, 2}};
    static small_batch alone, together;
    const built m = build(0.1);
    fv_tape *t = fv_tape_new(opts), *u = fv_tape_new(opts);
    for (int causal = 0; causal < 2; causal++)
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
            for (size_t count = 2; count <= SMALL_SENTENCES; count++) {
                small_batch_make(&together, count, orders[o]);
                const fv_real *batch = scores(t, &m.model, &together, causal);
                for (size_t s = 0; s < count; s++) {
                    small_batch_make(&alone, 1, orders[o] + s);
                    const fv_real *single = scores(u, &m.model, &alone, causal);
                    cr_expect_arr_eq(single, batch + together.at[s] * SMALL_CLASSES,
                                     alone.rows * SMALL_CLASSES * sizeof(fv_real),
                                     "sentence %d in order %zu, %zu sentences", orders[o][s], o,
                                     count);
                }
            }
    fv_tape_free(t);
    fv_tape_free(u);
    fv_params_free(m.params);
}

Test(same_bits, a_sentence_alone_or_in_a_batch)
{
    compare_batches(NULL);
}

Test(same_bits, a_sentence_alone_or_in_a_batch_with_avx2)
{
    need_isa("avx2");
    compare_batches(&(fv_tape_opts){.isa = "avx2", .threads = 2});
}

/* ---- what is hidden ------------------------------------------------------------------------------------- */

/* Row j changed: the rows before it keep their bits, and the row itself does not. */
Test(same_bits, causal)
{
    static small_batch b;
    static fv_real before[SMALL_ROWS * SMALL_CLASSES];
    const built m = build(0);
    fv_tape *t = fv_tape_new(NULL);
    const int sentences[] = {2, 6};
    small_batch_make(&b, 2, sentences);
    memcpy(before, scores(t, &m.model, &b, true), b.rows * SMALL_CLASSES * sizeof(fv_real));
    const size_t from = b.at[1];
    for (size_t j = from; j < b.rows; j += 13) {
        const int32_t kept = b.ids[j];
        b.ids[j] = (kept + 1) % SMALL_WORDS;
        const fv_real *after = scores(t, &m.model, &b, true);
        cr_expect_arr_eq(before, after, j * SMALL_CLASSES * sizeof(fv_real), "row %zu", j);
        cr_expect_arr_neq(before + j * SMALL_CLASSES, after + j * SMALL_CLASSES,
                          SMALL_CLASSES * sizeof(fv_real), "row %zu", j);
        b.ids[j] = kept;
    }
    fv_tape_free(t);
    fv_params_free(m.params);
}

/* A word that is NaN spoils its own sentence and no other, in outputs and in the gradients of inputs. */
Test(same_bits, nan_stays_in_its_sentence)
{
    static small_batch b;
    static fv_real before[SMALL_ROWS * SMALL_CLASSES], x[SMALL_ROWS * WIDTH],
        dx[SMALL_ROWS * WIDTH];
    const built m = build(0);
    fv_tape *t = fv_tape_new(NULL);
    small_batch_make(&b, SMALL_SENTENCES, everything);
    for (size_t i = 0; i < SMALL_ROWS * WIDTH; i++)
        x[i] = (fv_real)fv_rng_normal(fv_rng_make(1, 1, "x"), i);
    for (int spoiled = -1; spoiled < SMALL_SENTENCES; spoiled++) {
        if (spoiled >= 0 && small_lengths[spoiled] == 0)
            continue;
        const size_t hole = spoiled < 0 ? 0 : b.at[spoiled] + small_lengths[spoiled] / 2;
        const fv_real kept = x[hole * WIDTH + 5];
        if (spoiled >= 0)
            x[hole * WIDTH + 5] = (fv_real)NAN;
        fv_tape_begin(t, FV_GRAD, 1, 1);
        const fv_mask mask = {.queries = &b.segments};
        fv_var *input = fv_input(t, FV_SHAPE(SMALL_ROWS, WIDTH), x), *y = input;
        y = fv_linear_forward(t, &m.model.window, fv_neighbours(t, y, &b.segments, 1));
        for (int i = 0; i < 2; i++)
            y = fv_block_forward(t, &m.model.block[i], y, &mask);
        y = fv_linear_forward(t, &m.model.head, y);
        cr_assert(fv_backward(t, fv_cross_entropy_sum(t, y, b.labels, NULL, NULL)));
        for (int s = 0; s < SMALL_SENTENCES; s++) {
            const size_t at = b.at[s], rows = small_lengths[s];
            const fv_real *out = y->value.data + at * SMALL_CLASSES, *in = input->grad + at * WIDTH;
            if (s == spoiled)
                for (size_t i = 0; i < rows * SMALL_CLASSES; i++)
                    cr_assert(isnan((double)fv_re(out[i])), "sentence %d should be NaN", s);
            else if (spoiled >= 0) {
                cr_expect_arr_eq(out, before + at * SMALL_CLASSES,
                                 rows * SMALL_CLASSES * sizeof(fv_real), "outputs of %d, NaN in %d",
                                 s, spoiled);
                cr_expect_arr_eq(in, dx + at * WIDTH, rows * WIDTH * sizeof(fv_real),
                                 "gradients of %d, NaN in %d", s, spoiled);
            }
        }
        if (spoiled < 0) {
            memcpy(before, y->value.data, sizeof before);
            memcpy(dx, input->grad, sizeof dx);
        }
        x[hole * WIDTH + 5] = kept;
    }
    fv_tape_free(t);
    fv_params_free(m.params);
}
