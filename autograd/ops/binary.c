/* Arithmetic on two operands and more. Each op: name, formula, source; its value; da; db; samples. */
#include "autograd/ops/elementwise.h"

FVI_BINARY(add, "y = a + b", "", a + b, dy, dy, -2, 2, -2, 2)
FVI_BINARY(sub, "y = a - b", "", a - b, dy, -dy, -2, 2, -2, 2)
FVI_BINARY(mul, "y = a * b", "", a *b, dy *b, dy *a, -2, 2, -2, 2)
FVI_BINARY(div, "y = a / b", "", a / b, dy / b, -dy *(y / b), -2, 2, 0.5, 2)
/* a^0 has no slope in a, 0^b none in b. */
FVI_BINARY(power, "y = a^b", "", fvi_pow2(a, b), fv_re(b) == 0 ? 0 : dy * b * fvi_pow2(a, b - 1),
           fv_re(a) == 0 && fv_re(b) >= 0 ? 0 : dy * y * fvi_log(a), 0.4, 2, -2, 2)
/* Equals get half of dy each; a NaN passes, and both get dy. */
FVI_BINARY(minimum, "y = min(a, b)", "",
           fv_re(a) < fv_re(b)    ? a
           : fv_re(b) <= fv_re(a) ? b
                                  : a + b,
           fv_re(a) > fv_re(b)    ? 0
           : fv_re(a) == fv_re(b) ? dy / 2
                                  : dy,
           fv_re(b) > fv_re(a)    ? 0
           : fv_re(a) == fv_re(b) ? dy / 2
                                  : dy,
           -2, 2, -1.5, 2.1)
FVI_BINARY(maximum, "y = max(a, b)", "",
           fv_re(a) > fv_re(b)    ? a
           : fv_re(b) >= fv_re(a) ? b
                                  : a + b,
           fv_re(a) < fv_re(b)    ? 0
           : fv_re(a) == fv_re(b) ? dy / 2
                                  : dy,
           fv_re(b) < fv_re(a)    ? 0
           : fv_re(a) == fv_re(b) ? dy / 2
                                  : dy,
           -2, 2, -1.5, 2.1)

/* ---- lerp: y = a + w (b - a) ----------------------------------------------------------------- */

static void lerp_values(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++) {
        const fv_real a = FVI_REAL_AT(in0, i), b = FVI_REAL_AT(in1, i), w = FVI_REAL_AT(in2, i);
        ((fv_real *)out)[i] = a + w * (b - a);
    }
}

/* da = dy (1 - w) */
static void lerp_da(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++)
        ((fv_real *)out)[i] += in_dy[i] * (1 - FVI_REAL_AT(in2, i));
}

/* db = dy w */
static void lerp_db(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++)
        ((fv_real *)out)[i] += in_dy[i] * FVI_REAL_AT(in2, i);
}

/* dw = dy (b - a) */
static void lerp_dw(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++)
        ((fv_real *)out)[i] += in_dy[i] * (FVI_REAL_AT(in1, i) - FVI_REAL_AT(in0, i));
}

static bool lerp_forward(fv_tape *t, fv_var *y)
{
    return run_forward(t, y, pass_of(y, lerp_values));
}

static void lerp_backward(fv_tape *t, fv_var *y)
{
    run_backward(t, y, pass_of(y, lerp_da), 0);
    run_backward(t, y, pass_of(y, lerp_db), 1);
    run_backward(t, y, pass_of(y, lerp_dw), 2);
}

enum { LERP_SAMPLES = 7 };
static fv_var *lerp_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const fv_shape of_b[LERP_SAMPLES] = {FV_SHAPE(5, 7),    FV_SHAPE(7),    FV_SHAPE(5, 1),
                                         FV_SHAPE(2, 1, 1), FV_SHAPE(1, 7), FV_SCALAR,
                                         FV_SHAPE(2)};
    const fv_shape of_w[LERP_SAMPLES] = {FV_SHAPE(5, 7), FV_SCALAR, FV_SHAPE(7), FV_SHAPE(5, 1),
                                         FV_SCALAR,      FV_SCALAR, FV_SCALAR};
    const fv_shape of_a = which == 4   ? FV_SHAPE(0, 7)
                          : which == 6 ? FV_SHAPE(FVI_SUMMED + 2, 2) /* db is a sum of sums */
                                       : FV_SHAPE(5, 7);
    fv_var *a = fv_sample(s, of_a, -2, 2);
    if (which == 5)
        return fv_lerp(t, a, a, a);
    fv_var *b = fv_sample(s, of_b[which], -2, 2);
    return fv_lerp(t, a, b, fv_sample(s, of_w[which], 0, 1));
}
FVI_OP(lerp, "y = a + w * (b - a)", "", LERP_SAMPLES)

/* ---- where: y = yes ? a : b ------------------------------------------------------------------ */

/* The byte of in2. */
#define YES(i) (((const unsigned char *)in2)[i] != 0)

static void where_values(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++) {
        const fv_real a = FVI_REAL_AT(in0, i), b = FVI_REAL_AT(in1, i);
        ((fv_real *)out)[i] = YES(i) ? a : b;
    }
}

/* da = yes ? dy : 0 */
static void where_da(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++)
        ((fv_real *)out)[i] += YES(i) ? in_dy[i] : 0;
}

/* db = yes ? 0 : dy */
static void where_db(FVI_LOOP)
{
    FVI_UNUSED;
    for (size_t i = 0; i < n; i++)
        ((fv_real *)out)[i] += YES(i) ? 0 : in_dy[i];
}

static pass where_pass(const fv_var *y, loop *run)
{
    const fv_bools *yes = y->options;
    pass p = pass_of(y, run);
    p.options = NULL;
    p.in[p.operands++] = (operand){yes->data, 1, yes->shape};
    return p;
}

static bool where_forward(fv_tape *t, fv_var *y)
{
    return run_forward(t, y, where_pass(y, where_values));
}

static void where_backward(fv_tape *t, fv_var *y)
{
    run_backward(t, y, where_pass(y, where_da), 0);
    run_backward(t, y, where_pass(y, where_db), 1);
}

enum { WHERE_SAMPLES = 6 };
static fv_var *where_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const fv_shape of_yes[WHERE_SAMPLES] = {FV_SHAPE(5, 7), FV_SHAPE(7),       FV_SHAPE(5, 1),
                                            FV_SCALAR,      FV_SHAPE(2, 1, 1), FV_SHAPE(0, 7)};
    const fv_shape of_b[WHERE_SAMPLES] = {FV_SHAPE(5, 7), FV_SHAPE(5, 1), FV_SCALAR,
                                          FV_SHAPE(5, 7), FV_SHAPE(7),    FV_SHAPE(1, 7)};
    fv_var *a = fv_sample(s, which == 5 ? FV_SHAPE(1, 7) : FV_SHAPE(5, 7), -2, 2);
    fv_var *b = which == 0 ? a : fv_sample(s, of_b[which], -2, 2);
    const size_t count = fv_shape_count(of_yes[which]);
    unsigned char *bytes = fv_tape_alloc(t, count + 1, 1);
    for (size_t i = 0; bytes != NULL && i < count; i++)
        bytes[i] = i % 3 != 1;
    return fv_where(t, (fv_bools){of_yes[which], bytes}, a, b);
}
FVI_OP(where, "y = yes ? a : b", "", WHERE_SAMPLES)

/* ---- add_many: y = x0 + x1 + .. -------------------------------------------------------------- */

static bool add_many_forward(fv_tape *t, fv_var *y)
{
    const size_t n = fvi_count(y);
    const int parts = parts_of(t, n, (size_t)y->inputs + 1);
    fv_real *out = y->value.data;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(n, parts, k);
        for (size_t i = p.from; i < p.to; i += FVI_BLOCK) { /* a block stays in the cache */
            const size_t m = p.to - i < FVI_BLOCK ? p.to - i : FVI_BLOCK;
            memcpy(out + i, y->in[0]->value.data + i, m * sizeof *out);
            for (int x = 1; x < y->inputs; x++)
                add_to(m, y->in[x]->value.data + i, out + i);
        }
    }
    return true;
}

static void add_many_dx(FVI_LOOP)
{
    FVI_UNUSED;
    add_to(n, in_dy, out);
}

/* dx = dy for each of them */
static void add_many_backward(fv_tape *t, fv_var *y)
{
    const pass p = {.run = add_many_dx, .shape = y->value.shape, .size = sizeof(fv_real)};
    for (int k = 0; k < y->inputs; k++)
        run_backward(t, y, p, k);
}

static fv_var *add_many_sample(fv_sampler *s, int which)
{
    const fv_shape shape = which == 3 ? FV_SHAPE(0, 2) : FV_SHAPE(3, 5);
    fv_var *x[4] = {fv_sample(s, shape, -2, 2), fv_sample(s, shape, -2, 2)};
    x[2] = x[0];
    x[3] = x[0];
    return fv_add_many(fv_sampler_tape(s), which == 0 ? 1 : which == 1 ? 2 : 4, x);
}
FVI_OP(add_many, "y = x0 + x1 + ..", "", 4)

#if FVI_ONCE
fv_var *fv_lerp(fv_tape *t, fv_var *a, fv_var *b, fv_var *w)
{
    fv_shape shape;
    if (!given(t, "lerp", a) || !given(t, "lerp", b) || !given(t, "lerp", w))
        return NULL;
    if (!broadcast_shapes(a->value.shape, b->value.shape, &shape) ||
        !broadcast_shapes(shape, w->value.shape, &shape))
        return fv_refuse(t, "lerp", "%s with %s and %s: shapes do not broadcast", fv_describe(t, a),
                         fv_describe(t, b), fv_describe(t, w));
    return fvi_record(t, FVI_OP_lerp, shape, NULL, 0, 3, (fv_var *[]){a, b, w});
}

fv_var *fv_where(fv_tape *t, fv_bools yes, fv_var *a, fv_var *b)
{
    fv_shape shape;
    char text[160];
    if (!given(t, "where", a) || !given(t, "where", b))
        return NULL;
    if (yes.data == NULL)
        return fv_refuse(t, "where", "no bytes of yes and no");
    if (yes.shape.rank < 0 || yes.shape.rank > FV_MAX_RANK)
        return fv_refuse(t, "where", "rank %d, expected 0 to %d", yes.shape.rank, FV_MAX_RANK);
    if (!broadcast_shapes(a->value.shape, b->value.shape, &shape) ||
        !broadcast_shapes(shape, yes.shape, &shape))
        return fv_refuse(t, "where", "%s chooses from %s and %s: shapes do not broadcast",
                         fv_shape_text(yes.shape, text), fv_describe(t, a), fv_describe(t, b));
    return fvi_record(t, FVI_OP_where, shape, &yes, sizeof yes, 2, (fv_var *[]){a, b});
}

fv_var *fv_add_many(fv_tape *t, int count, fv_var *const *x)
{
    if (count < 1)
        return fv_refuse(t, "add_many", "%d inputs, expected at least 1", count);
    for (int k = 0; k < count; k++) {
        if (!given(t, "add_many", x ? x[k] : NULL))
            return NULL;
        if (!fv_shape_equal(x[k]->value.shape, x[0]->value.shape))
            return fv_refuse(t, "add_many", "%s with %s: shapes differ", fv_describe(t, x[0]),
                             fv_describe(t, x[k]));
    }
    return fvi_record(t, FVI_OP_add_many, x[0]->value.shape, NULL, 0, count, x);
}

/* ---- compare: bytes, without history --------------------------------------------------------- */

#define COMPARE(name, relation)                                                                    \
    static void name(FVI_LOOP)                                                                     \
    {                                                                                              \
        FVI_UNUSED;                                                                                \
        for (size_t i = 0; i < n; i++)                                                             \
            ((unsigned char *)out)[i] =                                                            \
                fv_re(FVI_REAL_AT(in0, i)) relation fv_re(FVI_REAL_AT(in1, i));                    \
    }
COMPARE(less, <)
COMPARE(less_equal, <=)
COMPARE(equal, ==)
COMPARE(not_equal, !=)
COMPARE(greater_equal, >=)
COMPARE(greater, >)

fv_bools fv_compare(fv_tape *t, const fv_var *a, fv_relation relation, const fv_var *b)
{
    static loop *const run[] = {
        [FV_LESS] = less,       [FV_LESS_EQUAL] = less_equal,
        [FV_EQUAL] = equal,     [FV_NOT_EQUAL] = not_equal,
        [FV_GREATER] = greater, [FV_GREATER_EQUAL] = greater_equal,
    };
    const int relations = (int)(sizeof run / sizeof *run);
    const fv_bools none = {FV_SHAPE(0), NULL};
    fv_bools y;
    if (!given(t, "compare", a) || !given(t, "compare", b))
        return none;
    if ((int)relation < 0 || (int)relation >= relations) {
        fv_refuse(t, "compare", "relation %d, expected 0 to %d", (int)relation, relations - 1);
        return none;
    }
    if (!broadcast_shapes(a->value.shape, b->value.shape, &y.shape)) {
        fv_refuse(t, "compare", "%s with %s: shapes do not broadcast", fv_describe(t, a),
                  fv_describe(t, b));
        return none;
    }
    const size_t count = fv_shape_count(y.shape);
    if (count == 0 && fvi_count(a) > 0 && fvi_count(b) > 0) {
        fv_refuse(t, "compare", "%s with %s: more numbers than there can be", fv_describe(t, a),
                  fv_describe(t, b));
        return none;
    }
    unsigned char *bytes = fvi_tape_take(t, count, 1);
    if (bytes == NULL)
        return none;
    y.data = bytes;
    pass p = {.run = run[relation], .shape = y.shape, .operands = 2, .out = bytes, .size = 1};
    p.in[0] = (operand){a->value.data, sizeof(fv_real), a->value.shape};
    p.in[1] = (operand){b->value.data, sizeof(fv_real), b->value.shape};
    run_pass(t, &p);
    return y;
}
#endif
