/* Gradient checks of whole models by their parameters, and forward mode. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"
#include "tests/memory.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#if defined(FV_COMPLEX)
static const double TOLERANCE = 1e-14;
#else
static const double TOLERANCE = 1e-9;
#endif

/* ---- a model --------------------------------------------------------------------------------------------- */

enum { WORDS = 9, D = 4, CLASSES = 3, COUNT = 7 };

typedef struct {
    fv_params *params;
    fv_param *table, *weight, *bias, *output, *frozen;
    bool wrong;
    int calls, refuse_at;
} small_tagger;

static small_tagger make(uint64_t seed)
{
    small_tagger m = {.params = fv_params_new(seed)};
    const fv_scope head = fv_under(fv_root(m.params), "head");
    const fv_init normal = {FV_NORMAL, 0.5};
    m.table = fv_param_new(fv_root(m.params), "words", FV_SHAPE(WORDS, D), normal);
    m.frozen = fv_param_new(fv_root(m.params), "frozen", FV_SHAPE(D), normal);
    m.weight = fv_param_new(head, "weight", FV_SHAPE(D, D), normal);
    m.bias = fv_param_new(head, "bias", FV_SHAPE(D), (fv_init){FV_ZEROS, 0});
    m.output = fv_param_new(head, "output", FV_SHAPE(CLASSES, D), normal);
    m.frozen->frozen = true;
    m.bias->value.data[1] = (fv_real)-0.0;
    return m;
}

static bool scaled_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    for (size_t i = 0; i < fvi_count(y); i++)
        y->value.data[i] = y->in[0]->value.data[i] * y->in[1]->value.data[i % D];
    return true;
}

/* dx = dy w, dw = dy x summed over rows, the row of w shifted by one where a mistake is planted */
static void scaled_backward(fv_tape *t, fv_var *y)
{
    const bool wrong = *(const bool *)y->options;
    fv_real *dx = fv_grad(t, y->in[0]), *dw = fv_grad(t, y->in[1]);
    for (size_t i = 0; i < fvi_count(y); i++) {
        if (dx != NULL)
            dx[i] += y->grad[i] * y->in[1]->value.data[i % D];
        if (dw != NULL)
            dw[(i + wrong) % D] += y->grad[i] * y->in[0]->value.data[i];
    }
}

static const fv_op scaled = {
    .name = "scaled", .forward = scaled_forward, .backward = scaled_backward};

static const int32_t ids[COUNT] = {3, 0, 3, 5, 1, 3, 2}, labels[COUNT] = {2, 0, -1, 1, 1, 0, 2};

/* The table is gathered from twice and summed as a whole; the bias is used twice. */
static fv_var *loss(fv_tape *t, void *context)
{
    small_tagger *m = context;
    if (++m->calls == m->refuse_at)
        return fv_refuse(t, "loss", "enough");
    fv_var *x = fv_gather(t, fv_use(t, m->table), ids, COUNT);
    x = fv_add(t, x, fv_sum(t, fv_gather(t, fv_use(t, m->table), ids + 1, 2), NULL));
    x = fv_mul(t, x, fv_sum(t, fv_use(t, m->table), NULL));
    x = fv_affine(t, x, fv_use(t, m->weight), fv_use(t, m->bias));
    fv_var *in[] = {fv_add(t, fv_tanh(t, x), fv_use(t, m->frozen)), fv_use(t, m->bias)};
    if (in[0] == NULL || in[1] == NULL)
        return NULL;
    x = fv_record(t, &scaled, in[0]->value.shape, &m->wrong, sizeof m->wrong, 2, in);
    return fv_cross_entropy_sum(t, fv_affine(t, x, fv_use(t, m->output), NULL), labels, NULL, NULL);
}

/* All bits of a set, in memory of the caller. */
static size_t bits_of(const fv_params *params, unsigned char *bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const fv_tensor x = fv_params_at(params, i)->value;
        const size_t size = fv_shape_count(x.shape) * sizeof(fv_real);
        memcpy(bytes + at, x.data, size);
        at += size;
    }
    return at;
}

static unsigned char before[8192], after[8192];

Test(gradcheck_params, passes_and_restores)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        small_tagger m = make(seed);
        fv_gradcheck_result r;
        const size_t size = bits_of(m.params, before);
        cr_assert(fv_gradcheck_params(loss, m.params, &m, NULL, &r), "%s", r.error.text);
        cr_expect_eq(r.verdict, FV_CHECK_PASSED);
        cr_expect_eq(bits_of(m.params, after), size);
        cr_expect_arr_eq(before, after, size, "every bit, the sign of -0 too");
        cr_expect(fv_gradcheck_params(loss, m.params, &m, &(fv_gradcheck_opts){.full = true}, &r),
                  "%s", r.error.text);
        fv_params_free(m.params);
    }
}

Test(gradcheck_params, names_op_and_parameter)
{
    small_tagger m = make(1);
    fv_gradcheck_result r;
    m.wrong = true;
    const size_t size = bits_of(m.params, before);
    cr_expect_not(fv_gradcheck_params(loss, m.params, &m, NULL, &r));
    cr_expect_str_eq(r.op, "scaled");
    cr_expect_eq(r.input, 1);
    cr_expect_eq(r.cause, FV_CAUSE_ORDER, "%s", r.error.text);
    cr_expect_not_null(strstr(r.error.text, "gradient of its input 1, head.bias [4] at element "),
                       "%s", r.error.text);
    cr_expect_not_null(strstr(r.error.text, "; seen in head.bias [4]"), "%s", r.error.text);
    bits_of(m.params, after);
    cr_expect_arr_eq(before, after, size);
    fv_params_free(m.params);
}

/* Part of the loss goes around the tape: the parameter is named. */
static fv_var *detached_loss(fv_tape *t, void *context)
{
    const small_tagger *m = context;
    fv_var *w = fv_use(t, m->weight);
    return w ? fv_mul(t, w, fv_constant(t, w->value.shape, w->value.data)) : NULL;
}

Test(gradcheck_params, names_a_parameter)
{
    small_tagger m = make(1);
    fv_gradcheck_result r;
    cr_expect_not(fv_gradcheck_params(detached_loss, m.params, &m, NULL, &r));
    cr_expect_eq(strncmp(r.error.text, "gradient of head.weight [4, 4] at element ", 42), 0, "%s",
                 r.error.text);
    cr_expect_eq(r.input, (int)m.weight->index);
    cr_expect_eq(r.cause, FV_CAUSE_DETACHED);
    fv_params_free(m.params);
}

Test(gradcheck_params, restores_after_a_refusal)
{
    small_tagger m = make(1);
    const size_t size = bits_of(m.params, before);
    bool passed = false;
    for (m.refuse_at = 1; !passed; m.refuse_at++) {
        fv_gradcheck_result r;
        m.calls = 0;
        passed = fv_gradcheck_params(loss, m.params, &m, NULL, &r);
        if (!passed)
            cr_expect_str_eq(r.error.text, "loss: enough");
        cr_expect_eq(r.verdict, passed ? FV_CHECK_PASSED : FV_CHECK_FAILED);
        cr_expect_eq(passed, m.calls < m.refuse_at, "no refusal is lost");
        bits_of(m.params, after);
        cr_assert_arr_eq(before, after, size, "refused at call %d", m.refuse_at);
    }
    cr_expect_gt(m.refuse_at, 20);
    fv_params_free(m.params);
}

Test(gradcheck_params, refuses_a_broken_set)
{
    fv_gradcheck_result r;
    cr_expect_not(fv_gradcheck_params(loss, NULL, NULL, NULL, &r));
    cr_expect_str_eq(r.error.text, "gradcheck: no parameters");
    small_tagger m = make(1);
    fv_param_new(fv_root(m.params), "words", FV_SHAPE(2), (fv_init){FV_ZEROS, 0});
    cr_expect_not(fv_gradcheck_params(loss, m.params, &m, NULL, &r));
    cr_expect_str_eq(r.error.text, "parameter words: the name is taken");
    fv_params_free(m.params);
}

/* ---- forward mode ------------------------------------------------------------------------------------------- */

static fv_var *product(fv_tape *t, fv_var *const *x, void *context)
{
    (void)context;
    return fv_mul(t, fv_mul(t, x[0], x[0]), x[1]);
}

static fv_var *drop(fv_tape *t, fv_var *const *x, void *context)
{
    (void)context;
    return fv_dropout(t, x[0], 0.5);
}

static fv_var *nothing(fv_tape *t, fv_var *const *x, void *context)
{
    (void)x;
    (void)context;
    return fv_refuse(t, "nothing", "to see");
}

/* y = x0^2 x1, so dy = 2 x0 x1 v0 + x0^2 v1 */
Test(jvp, known_jacobian)
{
    fv_real x0[] = {1, 2, -3}, x1[] = {4, -5, 6}, v0[] = {1, 0, 2}, v1[] = {-1, 3, 1};
    const fv_shape three = FV_SHAPE(3);
    const fv_tensor x[] = {{three, x0}, {three, x1}}, v[] = {{three, v0}, {three, v1}},
                    half[] = {{three, NULL}, {three, v1}};
    static const double both[] = {7, 12, -63}, second[] = {-1, 12, 9}, y[] = {4, -20, 54};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 0);
    fv_tensor value, tangent;
    cr_assert(fv_jvp(t, product, NULL, 2, x, v, &value, &tangent), "%s", fv_tape_error(t)->text);
    cr_expect(fv_shape_equal(tangent.shape, three) && fv_shape_equal(value.shape, three));
    for (int i = 0; i < 3; i++) {
        cr_expect_float_eq(fv_re(tangent.data[i]), both[i], 60 * TOLERANCE);
        cr_expect_eq(fv_re(value.data[i]), y[i]);
        cr_expect_eq(fv_im(value.data[i]), 0);
    }
    cr_assert(fv_jvp(t, product, NULL, 2, x, half, NULL, &tangent));
    for (int i = 0; i < 3; i++)
        cr_expect_float_eq(fv_re(tangent.data[i]), second[i], 60 * TOLERANCE);
    fv_tape_free(t);
}

/* The same numbers are dropped as on the caller's tape. */
Test(jvp, draws_the_tape_s_random_numbers)
{
    fv_real x0[64], v0[64];
    for (int i = 0; i < 64; i++) {
        x0[i] = (fv_real)(i + 1);
        v0[i] = (fv_real)1;
    }
    const fv_tensor x = {FV_SHAPE(64), x0}, v = {FV_SHAPE(64), v0};
    fv_tape *t = fv_tape_new(NULL);
    fv_tensor value, tangent;
    fv_tape_begin(t, FV_TRAIN, 5, 3);
    cr_assert(fv_jvp(t, drop, NULL, 1, &x, &v, &value, &tangent));
    size_t kept = 0;
    for (int i = 0; i < 64; i++) {
        const bool here = fv_re(value.data[i]) != 0;
        kept += here;
        cr_expect_float_eq(fv_re(tangent.data[i]), here ? 2 : 0, 100 * TOLERANCE);
    }
    cr_expect(kept > 16 && kept < 48);
    fv_tape_free(t);
}

Test(jvp, refusals)
{
    fv_real numbers[] = {1, 2, 3};
    const fv_tensor x = {FV_SHAPE(3), numbers}, v = {FV_SHAPE(2), numbers},
                    none = {FV_SHAPE(3), NULL};
    fv_tape *t = fv_tape_new(NULL);
    fv_tensor tangent;
    fv_tape_begin(t, FV_EVAL, 1, 0);
    cr_expect_not(fv_jvp(t, drop, NULL, 1, &x, &v, NULL, &tangent));
    cr_expect_str_eq(fv_tape_error(t)->text, "jvp: input 0 is [3], its direction [2]");
    cr_expect_null(tangent.data);
    cr_expect_not(fv_jvp(t, drop, NULL, 1, &x, &x, NULL, &tangent), "after an error");
    fv_tape_begin(t, FV_EVAL, 1, 0);
    cr_expect_not(fv_jvp(t, nothing, NULL, 1, &x, &x, NULL, &tangent));
    cr_expect_str_eq(fv_tape_error(t)->text, "nothing: to see");
    fv_tape_begin(t, FV_EVAL, 1, 0);
    cr_expect_not(fv_jvp(t, drop, NULL, 1, &none, &none, NULL, &tangent));
    cr_expect_str_eq(fv_tape_error(t)->text, "sample: no numbers");
    fv_tape_free(t);
    cr_expect_eq(test_blocks(), 0);
}

#else

static fv_var *no_model(fv_tape *t, void *context)
{
    (void)context;
    return fv_refuse(t, "model", "was run");
}

static fv_var *no_function(fv_tape *t, fv_var *const *x, void *context)
{
    (void)x;
    return no_model(t, context);
}

Test(gradcheck_params, float_refuses)
{
    static const char why[] = "float has too few digits; link libfoveac (exact) or libfovea64";
    fv_params *params = fv_params_new(1);
    fv_tape *t = fv_tape_new(NULL);
    fv_gradcheck_result r;
    fv_tensor tangent;
    cr_expect_not(fv_gradcheck_params(no_model, params, NULL, NULL, &r));
    cr_expect_eq(r.error.status, FV_USAGE);
    cr_expect_eq(r.verdict, FV_CHECK_FAILED);
    cr_expect_not_null(strstr(r.error.text, why));
    fv_tape_begin(t, FV_EVAL, 1, 0);
    cr_expect_not(fv_jvp(t, no_function, NULL, 0, NULL, NULL, NULL, &tangent));
    cr_expect_not_null(strstr(fv_tape_error(t)->text, why));
    cr_expect_null(tangent.data);
    fv_tape_free(t);
    fv_params_free(params);
}

#endif
