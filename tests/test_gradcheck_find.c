/* What a gradient check says when something is wrong: kinks, noise, causes, ops deep in a model. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"
#include "tests/memory.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#if defined(FV_COMPLEX)
enum { EXACT = 1 };
#else
enum { EXACT = 0 };
#endif

/* ---- small ops to plant things in -------------------------------------------------------------------- */

typedef struct {
    void (*forward)(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out);
    void (*backward)(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                     fv_real *dx);
} rule;

static bool rule_forward(fv_tape *t, fv_var *y)
{
    const rule *r = y->options;
    r->forward(t, y, fvi_count(y), y->in[0]->value.data, y->value.data);
    return fv_tape_ok(t);
}

static void rule_backward(fv_tape *t, fv_var *y)
{
    const rule *r = y->options;
    fv_real *dx = fv_grad(t, y->in[0]);
    r->backward(fvi_count(y), fvi_columns(y), y->in[0]->value.data, y->value.data, y->grad, dx);
}

static const fv_op rule_op = {.name = "rule", .forward = rule_forward, .backward = rule_backward};

static fv_var *apply(fv_tape *t, const rule *r, fv_var *x)
{
    return x ? fv_record(t, &rule_op, x->value.shape, r, sizeof *r, 1, &x) : NULL;
}

/* A rule on an input of five rows and three columns, inside tanh. */
static fv_var *of_rule(fv_sampler *s, void *context)
{
    fv_tape *t = fv_sampler_tape(s);
    return fv_tanh(t, apply(t, context, fv_sample(s, FV_SHAPE(5, 3), -1, 1)));
}

static fv_gradcheck_result check_rule(const rule *r)
{
    fv_gradcheck_result result;
    rule copy = *r;
    fv_gradcheck(of_rule, &copy, NULL, &result);
    return result;
}

static void square(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    (void)t;
    (void)y;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * x[i];
}

static void square_back(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                        fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 2 * x[i] * dy[i];
}

static void mean_as_sum(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                        fv_real *dx)
{
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 2 * x[i] * dy[i] * (fv_real)(n / d);
}

static void rows_reversed(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                          fv_real *dx)
{
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[(n / d - 1 - i / d) * d + i % d] += 2 * x[i] * dy[i];
}

static void same_in_rows(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                         fv_real *dx)
{
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 2 * x[i] * dy[i] - (fv_real)0.25 * (fv_real)(i % d + 1) * (fv_real)(i % d + 1);
}

static void a_term_more(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                        fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 2 * x[i] * dy[i] + 3 * x[i];
}

static void some_zero(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                      fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i + 4 < n; i++)
        dx[i] += 2 * x[i] * dy[i];
}

Test(gradcheck_find, causes)
{
    static const struct {
        rule r;
        fv_check_cause cause;
        const char *says;
    } cases[] = {
        {{square, square_back}, FV_CAUSE_NONE, ""},
        {{square, mean_as_sum},
         FV_CAUSE_FACTOR,
         ": a factor of 5 too much (a mean taken as a sum over 5 rows?); seen in input 0 [5, 3]"},
        {{square, rows_reversed}, FV_CAUSE_ORDER, ": the rows are in another order; "},
        {{square, same_in_rows},
         FV_CAUSE_TERM,
         ": a term is missing that is the same in all rows; "},
        {{square, a_term_more}, FV_CAUSE_TERM, ": a term is missing: -3 times x; "},
        {{square, some_zero},
         FV_CAUSE_ELEMENTS,
         ": only 4 of 15 elements differ, where it is zero; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fv_gradcheck_result r = check_rule(&cases[i].r);
        cr_expect_eq(r.cause, cases[i].cause, "case %zu: %s", i, r.error.text);
        cr_expect_not_null(strstr(r.error.text, cases[i].says), "case %zu: %s", i, r.error.text);
        if (cases[i].cause != FV_CAUSE_NONE)
            cr_expect_str_eq(r.op, "rule");
    }
}

/* ---- kinks ------------------------------------------------------------------------------------------------ */

typedef struct {
    fv_real x[6];
    bool maximum, wrong_too;
} at_kink;

static void wrong_back(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                       fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 3 * x[i] * dy[i];
}

static const size_t two_at[] = {0, 2};
static const fv_segments one_of_two = {1, two_at};

static fv_var *kinked(fv_sampler *s, void *context)
{
    static const rule wrong = {square, wrong_back};
    const at_kink *k = context;
    fv_tape *t = fv_sampler_tape(s);
    fv_var *other = fv_sample(s, FV_SHAPE(2), 1, 2);
    fv_var *x = fv_sample_from(s, FV_SHAPE(2, 3), k->x);
    x = k->maximum ? fv_segment_max(t, x, &one_of_two) : fv_relu(t, x);
    fv_var *sums = fv_mul(t, fv_sum(t, x, NULL), fv_sum(t, fv_mul(t, other, other), NULL));
    return k->wrong_too ? fv_add(t, sums, fv_sum(t, apply(t, &wrong, other), NULL)) : sums;
}

Test(gradcheck_find, kinks)
{
    static const struct {
        at_kink at;
        fv_check_verdict exact, differences;
        size_t index;
        const char *says;
    } cases[] = {
        {{{-1, 2, 1, 1, -2, 3}, false, false}, FV_CHECK_PASSED, FV_CHECK_PASSED, 0, ""},
        {{{-1, 2, 1, 0, -2, 3}, false, false},
         FV_CHECK_KINK,
         FV_CHECK_KINK,
         3,
         "input 1 [2, 3] at element 3 (row 1, column 0, value 0) sits on a kink: move this input"},
        {{{-1, 2, 1, 1, (fv_real)0.0003, 3}, false, false},
         FV_CHECK_PASSED,
         FV_CHECK_KINK,
         4,
         "input 1 [2, 3] at element 4 (row 1, column 1, value 0.0003) sits on a kink: move this "
         "input"},
        {{{-1, 2, 1, 1, (fv_real)-0.0003, 3}, false, false}, FV_CHECK_PASSED, FV_CHECK_KINK, 4, ""},
        {{{-1, 2, 1, 1, (fv_real)0.02, 3}, false, false}, FV_CHECK_PASSED, FV_CHECK_PASSED, 0, ""},
        {{{1, 2, 3, 4, 2, 5}, true, false}, FV_CHECK_KINK, FV_CHECK_KINK, 1, "kink"},
        {{{1, 2, 3, 4, 7, 5}, true, false}, FV_CHECK_PASSED, FV_CHECK_PASSED, 0, ""},
        {{{-1, 2, 1, 0, -2, 3}, false, true}, FV_CHECK_FAILED, FV_CHECK_FAILED, 0, "op rule "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_gradcheck_result r;
        at_kink at = cases[i].at;
        const bool ok = fv_gradcheck(kinked, &at, NULL, &r);
        const fv_check_verdict expected = EXACT ? cases[i].exact : cases[i].differences;
        cr_expect_eq(r.verdict, expected, "case %zu: %d, %s", i, (int)r.verdict, r.error.text);
        cr_expect_eq(ok, expected == FV_CHECK_PASSED);
        if (expected == FV_CHECK_PASSED)
            continue;
        cr_expect_not_null(strstr(r.error.text, cases[i].says), "case %zu: %s", i, r.error.text);
        if (expected == FV_CHECK_KINK)
            cr_expect(r.input == 1 && r.index == cases[i].index, "case %zu: %s", i, r.error.text);
    }
}

/* Two points see a kink as well, and differences in the complex build do. */
Test(gradcheck_find, kinks_by_two_points)
{
    at_kink at = {{-1, 2, 1, (fv_real)0.000003, -2, 3}, false, false};
    fv_gradcheck_result r;
    cr_expect_not(fv_gradcheck(kinked, &at, &(fv_gradcheck_opts){.points = 2}, &r));
    cr_expect_eq(r.verdict, FV_CHECK_KINK, "%s", r.error.text);
    cr_expect_eq(r.index, 3);
    at.x[3] = 1;
    for (int points = 2; points <= 4; points += 2)
        cr_expect(fv_gradcheck(kinked, &at, &(fv_gradcheck_opts){.points = points}, &r), "%s",
                  r.error.text);
}

/* ---- noise ------------------------------------------------------------------------------------------------- */

static void far_and_back(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    (void)t;
    (void)y;
    for (size_t i = 0; i < n; i++) {
        volatile double high = fv_re(x[i]) + 1e9;
        out[i] = x[i] + (high - 1e9 - fv_re(x[i]));
    }
}

static void pass(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                 fv_real *dx)
{
    (void)d;
    (void)x;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += dy[i];
}

static void pass_negative(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                          fv_real *dx)
{
    (void)d;
    (void)x;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] -= dy[i];
}

Test(gradcheck_find, noise)
{
    const fv_gradcheck_result right = check_rule(&(rule){far_and_back, pass});
    cr_expect_eq(right.verdict, EXACT ? FV_CHECK_PASSED : FV_CHECK_NOISY, "%s", right.error.text);
    if (!EXACT) {
        cr_expect_eq(strncmp(right.error.text, "cannot tell, too noisy: gradient of input 0", 43),
                     0, "%s", right.error.text);
        cr_expect_gt(right.given_rounding, 1e-7, "%s", right.error.text);
    }
    const fv_gradcheck_result wrong = check_rule(&(rule){far_and_back, pass_negative});
    cr_expect_eq(wrong.verdict, FV_CHECK_FAILED, "%s", wrong.error.text);
}

static void a_millionth_more(size_t n, size_t d, const fv_real *x, const fv_real *y,
                             const fv_real *dy, fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += 2 * x[i] * dy[i] * (fv_real)1.000001;
}

/* What is not noise is not taken for it. */
Test(gradcheck_find, small_mistakes)
{
    const fv_gradcheck_result r = check_rule(&(rule){square, a_millionth_more});
    cr_expect_eq(r.verdict, FV_CHECK_FAILED);
    cr_expect_eq(r.cause, FV_CAUSE_FACTOR, "%s", r.error.text);
    cr_expect_not_null(strstr(r.error.text, "a factor of 1 + 1e-06 too much"), "%s", r.error.text);
    cr_expect_lt(r.given_rounding, 1e-9);
}

/* ---- runs and threads ------------------------------------------------------------------------------------------ */

static void by_threads(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    square(t, y, n, x, out);
    out[0] += (fv_real)1e-9 * (fv_real)fv_tape_threads(t);
}

static void by_calls(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    static int calls;
    square(t, y, n, x, out);
    out[0] += (fv_real)1e-9 * (fv_real)++calls;
}

static void by_old_memory(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    const unsigned char *old = fvi_tape_take(t, 64, 1);
    square(t, y, n, x, out);
    if (old != NULL)
        out[0] += (fv_real)1e-9 * (fv_real)old[7];
}

Test(gradcheck_find, other_bits)
{
    fv_gradcheck_result r = check_rule(&(rule){by_threads, square_back});
    cr_expect_eq(r.cause, FV_CAUSE_UNEQUAL);
    cr_expect_str_eq(r.error.text, "1 thread and 2 differ: the output of op rule (value 1 on the "
                                   "tape): threads share a sum, or write to one place");
    rule copy = {by_threads, square_back};
    static const int one[] = {1, 0}, five[] = {5, 0};
    cr_expect(fv_gradcheck(of_rule, &copy, &(fv_gradcheck_opts){.threads = one}, &r), "%s",
              r.error.text);
    cr_expect_not(fv_gradcheck(of_rule, &copy, &(fv_gradcheck_opts){.threads = five}, &r));
    cr_expect_not_null(strstr(r.error.text, "1 thread and 5 differ"), "%s", r.error.text);
#ifdef FV_POISON
    const int first = 1; /* a tape's memory holds the same before every run */
#else
    const int first = 0;
#endif
    for (int i = first; i < 2; i++) {
        r = check_rule(&(rule){i ? by_calls : by_old_memory, square_back});
        cr_expect_eq(r.cause, FV_CAUSE_UNEQUAL, "%s", r.error.text);
        cr_expect_str_eq(r.error.text,
                         "two runs differ: the output of op rule (value 1 on the tape): memory "
                         "read before it is written, or numbers from outside the tape");
        cr_expect_str_eq(r.op, "rule");
    }
}

/* ---- the imaginary part ---------------------------------------------------------------------------------------- */

#if defined(FV_COMPLEX)
static void loses_it(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    (void)t;
    (void)y;
    for (size_t i = 0; i < n; i++)
        out[i] = fv_re(x[i]) * fv_re(x[i]);
}

static void loses_half(fv_tape *t, const fv_var *y, size_t n, const fv_real *x, fv_real *out)
{
    (void)t;
    (void)y;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * fv_re(x[i]);
}

static void half_back(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                      fv_real *dx)
{
    (void)d;
    (void)y;
    for (size_t i = 0; i < n; i++)
        dx[i] += x[i] * dy[i];
}

Test(gradcheck_find, a_forward_that_loses_the_imaginary_part)
{
    const fv_gradcheck_result r = check_rule(&(rule){loses_it, square_back});
    cr_expect_eq(r.cause, FV_CAUSE_TANGENT, "%s", r.error.text);
    cr_expect_not_null(strstr(r.error.text, "by real steps the gradient is right"));
    /* and where backward makes the same mistake, real steps find it */
    const fv_gradcheck_result both = check_rule(&(rule){loses_half, half_back});
    cr_expect_eq(both.verdict, FV_CHECK_FAILED);
    cr_expect_eq(both.cause, FV_CAUSE_FACTOR, "%s", both.error.text);
    cr_expect_float_eq(both.given / both.exact, 0.5, 1e-6, "%s", both.error.text);
}
#endif

/* ---- around the tape ------------------------------------------------------------------------------------------- */

static fv_var *detached(fv_sampler *s, void *context)
{
    (void)context;
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(4), -1, 1), *y = fv_mul(t, x, x);
    return y ? fv_mul(t, x, fv_constant(t, y->value.shape, y->value.data)) : NULL;
}

Test(gradcheck_find, a_value_that_goes_around_the_tape)
{
    fv_gradcheck_result r;
    cr_expect_not(fv_gradcheck(detached, NULL, NULL, &r));
    cr_expect_eq(r.cause, FV_CAUSE_DETACHED, "%s", r.error.text);
    cr_expect_str_empty(r.op);
    cr_expect_eq(r.input, 0);
    cr_expect_float_eq(r.exact / r.given, 3, 1e-6, "x^3 by a rule that sees x: %s", r.error.text);
}

/* ---- a large input ----------------------------------------------------------------------------------------------- */

static void one_of_many(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                        fv_real *dx)
{
    square_back(n, d, x, y, dy, dx);
    dx[4321] += (fv_real)0.5;
}

static fv_var *large(fv_sampler *s, void *context)
{
    fv_tape *t = fv_sampler_tape(s);
    return fv_sum(t, apply(t, context, fv_sample(s, FV_SHAPE(100, 60), -1, 1)), NULL);
}

Test(gradcheck_find, one_element_of_many)
{
    rule r = {square, one_of_many};
    fv_gradcheck_result result;
    cr_expect_not(fv_gradcheck(large, &r, NULL, &result));
    cr_expect_eq(result.index, 4321, "%s", result.error.text);
    cr_expect_eq(result.cause, FV_CAUSE_ELEMENTS, "%s", result.error.text);
    cr_expect_not_null(strstr(result.error.text, "(row 72, column 1, value "), "%s",
                       result.error.text);
}

/* ---- everything --------------------------------------------------------------------------------------------------- */

static fv_var *square_of(fv_sampler *s, void *context)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(3, 2), -1, 1), *w = fv_sample(s, FV_SHAPE(2, 2), -1, 1);
    return fv_tanh(t, fv_matmul(t, apply(t, context, x), w, NULL));
}

static void one_output(size_t n, size_t d, const fv_real *x, const fv_real *y, const fv_real *dy,
                       fv_real *dx)
{
    square_back(n, d, x, y, dy, dx);
    dx[3] += (fv_real)0.125 * dy[2];
}

Test(gradcheck_find, jacobian_and_full)
{
    rule r = {square, square_back};
    fv_gradcheck_result result;
    const fv_gradcheck_opts every = {.full = true}, rows = {.jacobian = true};
    cr_expect(fv_gradcheck(square_of, &r, &every, &result), "%s", result.error.text);
    cr_expect(fv_gradcheck(square_of, &r, &rows, &result), "%s", result.error.text);
    cr_expect_leq(result.tangent, EXACT ? 1e-12 : 1e-7);
    cr_expect_geq(result.tangent, 0);
    r.backward = one_output;
    cr_expect_not(fv_gradcheck(square_of, &r, &rows, &result));
    cr_expect_str_eq(result.op, "rule", "%s", result.error.text);
    cr_expect_eq(result.index, 3);
    r.backward = square_back;
    cr_expect(fv_gradcheck(square_of, &r, &(fv_gradcheck_opts){.first_only = true}, &result));
    cr_expect_eq(result.second_order, -1);
}

static fv_var *wide(fv_sampler *s, void *context)
{
    (void)context;
    fv_var *x = fv_sample(s, FV_SHAPE(50, 50), -1, 1);
    return fv_mul(fv_sampler_tape(s), x, x);
}

Test(gradcheck_find, a_jacobian_that_is_too_large)
{
    fv_gradcheck_result r;
    cr_expect_not(fv_gradcheck(wide, NULL, &(fv_gradcheck_opts){.jacobian = true}, &r));
    cr_expect_not_null(strstr(r.error.text, "a Jacobian of 2500 x 2500 numbers is too large"), "%s",
                       r.error.text);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

Test(gradcheck_find, out_of_memory)
{
    rule right = {square, square_back}, wrong = {square, mean_as_sum};
    fv_gradcheck_result r;
    for (int i = 0; i < 2; i++) {
        size_t fails = 0;
        bool refused = true;
        for (size_t n = 1; refused; n++) {
            test_fail_after(n);
            const bool ok = fv_gradcheck(of_rule, i ? &wrong : &right, NULL, &r);
            test_fail_after(0);
            cr_assert_eq(test_blocks(), 0);
            refused = i ? r.cause != FV_CAUSE_FACTOR : !ok;
            if (refused)
                cr_assert_eq(r.error.status, FV_FAILED, "%zu: %s", n, r.error.text);
            fails += refused;
            cr_assert_lt(n, 1000);
        }
        cr_expect_gt(fails, 3, "%zu", fails);
    }
}

#endif
