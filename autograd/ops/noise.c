/* Noise in training: dropout of numbers or rows, Gaussian and Gumbel noise.
 *
 * The bits of number i are word i of the value's own random stream, so they depend on (seed, step, place
 * on the tape, i) alone, and backward draws them again instead of storing them. Gaussian and Gumbel noise
 * are made in blocks of FVI_PHILOX_BLOCK words by loops that vectorise. */
#include "autograd/ops/slices.h"
#include "tensor/math.h"
#include "tensor/philox.h"

enum { BLOCK = FVI_PHILOX_BLOCK };

typedef struct {
    fv_rng rng;
    double amount; /* probability, deviation or scale */
} noise_options;

/* ---- dropout ------------------------------------------------------------------------------------- */

/* A number is kept when its bits are at least this. */
static inline uint32_t threshold_of(const noise_options *o)
{
    return (uint32_t)(o->amount * 0x1p32);
}

/* A run of at most BLOCK numbers: out (+)= bits >= threshold ? scale * x : 0. The choice is made before
 * the product, so that a sum is one multiply-add with every instruction set. */
static inline void drop_run(size_t n, const uint32_t *restrict bits, uint32_t threshold,
                            fv_real scale, const fv_real *restrict x, fv_real *restrict out,
                            bool add)
{
    if (add)
        for (size_t i = 0; i < n; i++)
            out[i] += scale * (bits[i] >= threshold ? x[i] : 0);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = scale * (bits[i] >= threshold ? x[i] : 0);
}

static void drop(const fv_tape *t, const fv_var *y, const fv_real *x, fv_real *out, bool add)
{
    const noise_options *o = y->options;
    const uint32_t threshold = threshold_of(o);
    const fv_real scale = (fv_real)(1 / (1 - o->amount));
    const size_t n = fvi_count(y), blocks = n / BLOCK + (n % BLOCK > 0);
    const int parts = parts_of(t, blocks, 3 * BLOCK);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(blocks, parts, k);
        for (size_t b = p.from; b < p.to; b++) {
            const size_t at = b * BLOCK;
            uint32_t bits[BLOCK];
            fvi_philox_block(o->rng, at / 4, bits);
            if (n - at >= BLOCK)
                drop_run(BLOCK, bits, threshold, scale, x + at, out + at, add);
            else
                drop_run(n - at, bits, threshold, scale, x + at, out + at, add);
        }
    }
}

static bool dropout_forward(fv_tape *t, fv_var *y)
{
    drop(t, y, y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx = dy / (1 - p) where x was kept */
static void dropout_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        drop(t, y, y->grad, dx, !blank);
}

static fv_var *dropout_sample(fv_sampler *s, int which)
{
    const fv_shape shapes[] = {FV_SHAPE(9, 17), FV_SHAPE(9, 17), FV_SCALAR, FV_SHAPE(0, 3)};
    static const double p[] = {0.5, 0.1, 0.01, 0.5};
    return fv_dropout(fv_sampler_tape(s), fv_sample(s, shapes[which], -2, 2), p[which]);
}
FVI_OP(dropout, "y = x / (1 - p) with probability 1 - p, else 0",
       "Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, 2014", 4)

/* ---- dropout_rows -------------------------------------------------------------------------------- */

/* out (+)= scale * x for the rows that are kept */
static void drop_rows(const fv_tape *t, const fv_var *y, const fv_real *x, fv_real *out, bool add)
{
    const noise_options *o = y->options;
    const uint32_t threshold = threshold_of(o);
    const fv_real scale = (fv_real)(1 / (1 - o->amount));
    const axis_view v = view_axis(y->value.shape, 0);
    const size_t d = v.inner, rows = d ? v.n : 0;
    const int parts = parts_of(t, rows, 3 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        uint32_t bits[BLOCK];
        for (size_t r = p.from; r < p.to; r++) {
            const fv_real *restrict from = x + r * d;
            fv_real *restrict to = out + r * d;
            if (r == p.from || r % BLOCK == 0)
                fvi_philox_block(o->rng, r / BLOCK * (BLOCK / 4), bits);
            const bool kept = bits[r % BLOCK] >= threshold;
            if (kept && add)
                for (size_t c = 0; c < d; c++)
                    to[c] += scale * from[c];
            else if (kept)
                for (size_t c = 0; c < d; c++)
                    to[c] = scale * from[c];
            else if (!add)
                memset(to, 0, d * sizeof *to);
        }
    }
}

static bool dropout_rows_forward(fv_tape *t, fv_var *y)
{
    drop_rows(t, y, y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx = dy / (1 - p) in the rows that were kept */
static void dropout_rows_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        drop_rows(t, y, y->grad, dx, !blank);
}

static fv_var *dropout_rows_sample(fv_sampler *s, int which)
{
    const fv_shape shapes[] = {FV_SHAPE(70, 3), FV_SHAPE(9), FV_SHAPE(4, 2, 3), FV_SHAPE(1, 1)};
    static const double p[] = {0.5, 0.3, 0.1, 0.01};
    return fv_dropout_rows(fv_sampler_tape(s), fv_sample(s, shapes[which], -2, 2), p[which]);
}
FVI_OP(dropout_rows, "y[r] = x[r] / (1 - p) with probability 1 - p, else 0",
       "Tompson, Goroshin, Jain, LeCun, Bregler, 2015, arXiv 1411.4280", 4)

/* ---- Gaussian and Gumbel noise ------------------------------------------------------------------- */

/* Cosine and sine of bits * 2^-32 turns: the nearest quarter turn leaves at most pi / 4 for the
 * polynomials (minimax fits of our own, 3e-8), and says which of the two is which and their signs. */
#if !defined(FV_F64) && !defined(FV_COMPLEX)
static inline void turn(uint32_t bits, fv_real *cosine, fv_real *sine)
{
    const uint32_t quarter = (bits + 0x20000000u) >> 30;
    const float x = (float)(int32_t)(bits - (quarter << 30)) * 0x1.921fb6p-30f; /* 2 pi 2^-32 */
    const float square = x * x;
    float s = -0x1.98fb4p-13f, c = 0x1.98e77ap-16f;
    s = s * square + 0x1.110604p-7f;
    s = s * square - 0x1.555540p-3f;
    s = s * square * x + x;
    c = c * square - 0x1.6c06eap-10f;
    c = c * square + 0x1.555538p-5f;
    c = c * square - 0.5f;
    c = c * square + 1;
    const bool odd = quarter & 1;
    const uint32_t minus_cosine = ((quarter + 1) & 2) << 30, minus_sine = (quarter & 2) << 30;
    *cosine = fvi_from_bits(fvi_bits(odd ? s : c) ^ minus_cosine);
    *sine = fvi_from_bits(fvi_bits(odd ? c : s) ^ minus_sine);
}
#else
static inline void turn(uint32_t bits, fv_real *cosine, fv_real *sine)
{
    const double angle = 6.283185307179586 * 0x1p-32 * bits;
    *cosine = cos(angle);
    *sine = sin(angle);
}
#endif

/* Independent normal numbers from uniform bits: word i and word i + BLOCK / 2 make the radius and the
 * angle of a point in the plane, whose coordinates are numbers i and i + BLOCK / 2. */
static void normal_block(const uint32_t bits[restrict BLOCK], fv_real z[restrict BLOCK])
{
    for (int i = 0; i < BLOCK / 2; i++) {
        const fv_real u = ((fv_real)(int32_t)(bits[i] >> 1) + 1) * (fv_real)0x1p-31; /* (0, 1] */
        const fv_real radius = fvi_sqrt(-2 * fvi_log(u));
        fv_real c, s;
        turn(bits[i + BLOCK / 2], &c, &s);
        z[i] = radius * c;
        z[i + BLOCK / 2] = radius * s;
    }
}

/* -ln(-ln(u)) for u = (k + 1/2) 2^-31. Near 1 ln(u) is ln(q) s / (1 - q), where q is 1 - s rounded and
 * 1 - u = s, so that the right tail keeps its digits (Kahan's log1p). */
static void gumbel_block(const uint32_t bits[restrict BLOCK], fv_real z[restrict BLOCK])
{
    for (int i = 0; i < BLOCK; i++) {
        const int32_t whole = (int32_t)(bits[i] >> 1), rest = 0x7fffffff - whole;
        const bool low = whole < rest; /* u < 1/2 */
        const fv_real s = ((fv_real)(low ? whole : rest) + (fv_real)0.5) * (fv_real)0x1p-31;
        const fv_real q = 1 - s, minus_log = -fvi_log(low ? s : q), gap = 1 - q;
        const bool tiny = fv_re(gap) == 0;
        const fv_real near_one = tiny ? s : minus_log * s / (tiny ? 1 : gap);
        z[i] = -fvi_log(low ? minus_log : near_one);
    }
}

/* y = x + amount * noise */
static inline void add_noise(const fv_tape *t, fv_var *y,
                             void (*block)(const uint32_t[restrict BLOCK], fv_real[restrict BLOCK]))
{
    const noise_options *o = y->options;
    const fv_real amount = (fv_real)o->amount;
    const size_t n = fvi_count(y), blocks = n / BLOCK + (n % BLOCK > 0);
    const int parts = parts_of(t, blocks, 16 * BLOCK);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(blocks, parts, k);
        for (size_t b = p.from; b < p.to; b++) {
            const size_t at = b * BLOCK, here = n - at < BLOCK ? n - at : BLOCK;
            const fv_real *restrict x = y->in[0]->value.data + at;
            fv_real *restrict out = y->value.data + at, z[BLOCK];
            uint32_t bits[BLOCK];
            fvi_philox_block(o->rng, at / 4, bits);
            block(bits, z);
            for (size_t i = 0; i < here; i++)
                out[i] = x[i] + amount * z[i];
        }
    }
}

/* dx = dy */
static void add_noise_back(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    const size_t n = fvi_count(y);
    const int parts = parts_of(t, n, 3);
    if (dx == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(n, parts, k);
        if (blank)
            memcpy(dx + p.from, y->grad + p.from, (p.to - p.from) * sizeof *dx);
        else
            add_to(p.to - p.from, y->grad + p.from, dx + p.from);
    }
}

static bool gaussian_noise_forward(fv_tape *t, fv_var *y)
{
    add_noise(t, y, normal_block);
    return true;
}

/* dx = dy */
static void gaussian_noise_backward(fv_tape *t, fv_var *y)
{
    add_noise_back(t, y);
}

static fv_var *gaussian_noise_sample(fv_sampler *s, int which)
{
    const fv_shape shapes[] = {FV_SHAPE(9, 17), FV_SCALAR, FV_SHAPE(2, 3, 2)};
    return fv_gaussian_noise(fv_sampler_tape(s), fv_sample(s, shapes[which], -2, 2),
                             which ? 0.1 : 1);
}
FVI_OP(gaussian_noise, "y = x + deviation * sqrt(-2 ln u) cos(2 pi v), u and v uniform",
       "Box and Muller, 1958", 3)

static bool gumbel_noise_forward(fv_tape *t, fv_var *y)
{
    add_noise(t, y, gumbel_block);
    return true;
}

/* dx = dy */
static void gumbel_noise_backward(fv_tape *t, fv_var *y)
{
    add_noise_back(t, y);
}

static fv_var *gumbel_noise_sample(fv_sampler *s, int which)
{
    const fv_shape shapes[] = {FV_SHAPE(9, 17), FV_SCALAR, FV_SHAPE(2, 3, 2)};
    return fv_gumbel_noise(fv_sampler_tape(s), fv_sample(s, shapes[which], -2, 2), which ? 0.1 : 1);
}
FVI_OP(gumbel_noise, "y = x - scale * ln(-ln(u)), u uniform",
       "Jang, Gu, Poole, 2017, arXiv 1611.01144", 3)

#if FVI_ONCE
static fv_var *noisy(fv_tape *t, fvi_op_id id, fv_var *x, double amount)
{
    if (t->mode != FV_TRAIN || amount == 0)
        return x;
    const noise_options options = {fv_tape_rng(t), amount};
    return fvi_record(t, id, x->value.shape, &options, sizeof options, 1, &x);
}

static bool is_probability(fv_tape *t, const char *op, double p)
{
    char text[FVI_NUMBER];
    if (!(p >= 0 && p < 1))
        fv_refuse(t, op, "probability %s, expected 0 <= p < 1", fvi_number(text, p, 6));
    return fv_tape_ok(t);
}

static bool is_amount(fv_tape *t, const char *op, const char *what, double amount)
{
    char text[FVI_NUMBER];
    if (!(amount >= 0 && amount < INFINITY))
        fv_refuse(t, op, "%s %s, expected a finite number of at least 0", what,
                  fvi_number(text, amount, 6));
    return fv_tape_ok(t);
}

fv_var *fv_dropout(fv_tape *t, fv_var *x, double p)
{
    if (!given(t, "dropout", x) || !is_probability(t, "dropout", p))
        return NULL;
    return noisy(t, FVI_OP_dropout, x, p);
}

fv_var *fv_dropout_rows(fv_tape *t, fv_var *x, double p)
{
    const char *op = "dropout_rows";
    if (!given(t, op, x) || !is_probability(t, op, p))
        return NULL;
    if (x->value.shape.rank == 0)
        return fv_refuse(t, op, "%s has no rows", fv_describe(t, x));
    return noisy(t, FVI_OP_dropout_rows, x, p);
}

fv_var *fv_gaussian_noise(fv_tape *t, fv_var *x, double deviation)
{
    const char *op = "gaussian_noise";
    if (!given(t, op, x) || !is_amount(t, op, "deviation", deviation))
        return NULL;
    return noisy(t, FVI_OP_gaussian_noise, x, deviation);
}

fv_var *fv_gumbel_noise(fv_tape *t, fv_var *x, double scale)
{
    const char *op = "gumbel_noise";
    if (!given(t, op, x) || !is_amount(t, op, "scale", scale))
        return NULL;
    return noisy(t, FVI_OP_gumbel_noise, x, scale);
}
#endif
