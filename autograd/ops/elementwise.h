/* Elementwise ops, one line an op: FVI_UNARY and FVI_BINARY make an op of expressions, and the loops,
 * threads and broadcasting behind them are written here once.
 *
 * An expression sees single numbers: the operands x, or a and b; in a gradient also the value y and its
 * gradient dy. Each becomes a stretch, a plain loop over n neighbouring numbers, which vectorises. A pass
 * cuts tensors into stretches; an operand that repeats along one is written out in a small block first, so
 * that a stretch never asks how its operands move. */
#ifndef FVI_ELEMENTWISE_H
#define FVI_ELEMENTWISE_H

#include "autograd/ops/walk.h"
#include "tensor/math.h"

#include <string.h>

enum {
    FVI_OPERANDS = 3,  /* of an elementwise op, at most */
    FVI_BLOCK = 1024,  /* numbers of a stretch where operands are written out or gradients zeroed */
    FVI_SUMMED = 128,  /* stretches that are added up one after the other; such sums go in pairs */
    UNARY_SAMPLES = 4, /* for each range of a FVI_UNARY */
    BINARY_SAMPLES = 11 /* of a FVI_BINARY */
};

/* ---- stretches ------------------------------------------------------------------------------- */

/* Forward writes out[i]; backward, which also gets y and dy, adds to out[i]. */
#define FVI_LOOP                                                                                   \
    size_t n, const double *options, const void *restrict in0, const void *restrict in1,           \
        const void *restrict in2, const fv_real *restrict in_y, const fv_real *restrict in_dy,     \
        void *restrict out
typedef void loop(FVI_LOOP);

/* The i-th number of in0, in1 .. */
#define FVI_REAL_AT(x, i) (((const fv_real *)x)[i])
/* What a stretch has no use for. */
#define FVI_UNUSED (void)options, (void)in0, (void)in1, (void)in2, (void)in_y, (void)in_dy

/* Of x and the op's options a, b: a value, and a term of its gradient. */
#define FVI_UNARY_LOOPS(name, value, gradient)                                                     \
    static void name##_values(FVI_LOOP)                                                            \
    {                                                                                              \
        const fv_real a = (fv_real)options[0], b = (fv_real)options[1];                            \
        FVI_UNUSED, (void)a, (void)b;                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real x = FVI_REAL_AT(in0, i);                                                 \
            (void)x;                                                                               \
            ((fv_real *)out)[i] = value;                                                           \
        }                                                                                          \
    }                                                                                              \
    static void name##_gradients(FVI_LOOP)                                                         \
    {                                                                                              \
        const fv_real a = (fv_real)options[0], b = (fv_real)options[1];                            \
        FVI_UNUSED, (void)a, (void)b;                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real x = FVI_REAL_AT(in0, i), y = in_y[i], dy = in_dy[i];                     \
            (void)x, (void)y, (void)dy;                                                            \
            ((fv_real *)out)[i] += gradient;                                                       \
        }                                                                                          \
    }

/* Of a and b: a value; a term of one gradient. */
#define FVI_BINARY_VALUES(function, value)                                                         \
    static void function(FVI_LOOP)                                                                 \
    {                                                                                              \
        FVI_UNUSED;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real a = FVI_REAL_AT(in0, i), b = FVI_REAL_AT(in1, i);                        \
            ((fv_real *)out)[i] = value;                                                           \
        }                                                                                          \
    }
#define FVI_BINARY_GRADIENTS(function, gradient)                                                   \
    static void function(FVI_LOOP)                                                                 \
    {                                                                                              \
        FVI_UNUSED;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real a = FVI_REAL_AT(in0, i), b = FVI_REAL_AT(in1, i);                        \
            const fv_real y = in_y[i], dy = in_dy[i];                                              \
            (void)a, (void)b, (void)y;                                                             \
            ((fv_real *)out)[i] += gradient;                                                       \
        }                                                                                          \
    }

/* ---- passes: a stretch over whole tensors ---------------------------------------------------- */

/* Numbers that are read: fv_real, or bytes (size 1). */
typedef struct {
    const void *data;
    size_t size;
    fv_shape shape;
} operand;

typedef struct {
    loop *run;
    const double *options;
    fv_shape shape; /* of the result */
    int operands;
    operand in[FVI_OPERANDS];
    const fv_real *y, *dy; /* backward only */
    void *out;             /* one for each number of the result */
    size_t size;           /* of these, in bytes */
    bool blank;            /* out is a gradient that must be zeroed first */
} pass;

/* What a thread wrote out, and of which number. */
typedef struct {
    const char *of[FVI_OPERANDS];
    fv_real block[FVI_OPERANDS][FVI_BLOCK];
} copies;

/* The n <= FVI_BLOCK numbers that operand k has from `at` on, when it moves by step; longest: the most that
 * will be asked for. */
static inline const void *written_out(const pass *p, int k, ptrdiff_t at, ptrdiff_t step,
                                      size_t longest, copies *c)
{
    const size_t size = p->in[k].size;
    const char *x = (const char *)p->in[k].data + at * (ptrdiff_t)size;
    if (step != 0)
        return x;
    if (c->of[k] != x && size == 1)
        memset(c->block[k], *x, longest);
    for (size_t i = 0; c->of[k] != x && size != 1 && i < longest; i++)
        c->block[k][i] = *(const fv_real *)(const void *)x;
    c->of[k] = x;
    return c->block[k];
}

/* One stretch of n numbers: `start` into the run of the walk where the tensors stand at at[..]. */
static inline void run_block(const pass *p, const walk *w, const ptrdiff_t *at, size_t start,
                             size_t n, void *out, copies *c)
{
    const size_t longest = w->n < FVI_BLOCK ? w->n : FVI_BLOCK;
    const void *x[FVI_OPERANDS] = {NULL};
    for (int k = 0; k < p->operands; k++)
        x[k] = written_out(p, k, at[k + 1] + (ptrdiff_t)start * w->run[k + 1], w->run[k + 1],
                           longest, c);
    const ptrdiff_t place = at[0] + (ptrdiff_t)start;
    p->run(n, p->options, x[0], x[1], x[2], p->y ? p->y + place : NULL,
           p->dy ? p->dy + place : NULL, out);
}

/* The walk of a pass: tensor 0 is the result, then come the operands. */
static inline walk walk_of(const pass *p)
{
    ptrdiff_t step[FVI_WALKED][FV_MAX_RANK] = {{0}};
    steps_of(p->shape, step[0]);
    for (int k = 0; k < p->operands; k++)
        broadcast_steps(p->in[k].shape, p->shape, step[k + 1]);
    return walk_over(p->shape, p->operands + 1, step);
}

/* Numbers from .. to - 1 of a pass whose operands all have the shape of the result. */
static inline void run_plain(const pass *p, size_t from, size_t to)
{
    const size_t most = p->blank ? 2 * FVI_BLOCK : to - from;
    for (size_t i = from; i < to; i += most) {
        const size_t n = to - i < most ? to - i : most;
        const void *x[FVI_OPERANDS] = {NULL};
        char *out = (char *)p->out + i * p->size;
        for (int k = 0; k < p->operands; k++)
            x[k] = (const char *)p->in[k].data + i * p->in[k].size;
        if (p->blank) /* just before it is added to, while the cache holds it */
            memset(out, 0, n * p->size);
        p->run(n, p->options, x[0], x[1], x[2], p->y ? p->y + i : NULL, p->dy ? p->dy + i : NULL,
               out);
    }
}

/* Stretches from .. to - 1 of a walk, FVI_BLOCK numbers each but for the last of a run. */
static inline void run_walk(const pass *p, const walk *w, size_t from, size_t to)
{
    const size_t pieces = (w->n + FVI_BLOCK - 1) / FVI_BLOCK;
    copies c;
    memset(c.of, 0, sizeof c.of);
    size_t piece = from % pieces;
    walker at = walk_to(w, from / pieces);
    for (size_t i = from; i < to; i++) {
        const size_t start = piece * FVI_BLOCK;
        const size_t n = w->n - start < FVI_BLOCK ? w->n - start : FVI_BLOCK;
        char *out = (char *)p->out + ((size_t)at.at[0] + start) * p->size;
        if (p->blank)
            memset(out, 0, n * p->size);
        run_block(p, w, at.at, start, n, out, &c);
        if (++piece == pieces) {
            piece = 0;
            walk_on(w, &at);
        }
    }
}

/* Runs a pass that has one result for each number of its shape. */
static inline void run_pass(const fv_tape *t, const pass *p)
{
    const size_t count = fv_shape_count(p->shape);
    bool plain = true;
    for (int k = 0; k < p->operands; k++)
        plain = plain && fv_shape_count(p->in[k].shape) == count;
    if (count == 0)
        return;
    const walk w = plain ? (walk){.runs = 1, .n = count} : walk_of(p);
    const size_t things = plain ? count : w.runs * ((w.n + FVI_BLOCK - 1) / FVI_BLOCK);
    const int parts = parts_of(t, things, plain ? 4 : 4 * (w.n < FVI_BLOCK ? w.n : FVI_BLOCK));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part mine = part_at(things, parts, k);
        if (plain)
            run_plain(p, mine.from, mine.to);
        else
            run_walk(p, &w, mine.from, mine.to);
    }
}

/* ---- the gradient of an operand that was broadcast ------------------------------------------- */

/* A walk cut in two: over axes along which an operand moves, and over those that are summed. */
typedef struct {
    walk all, moving, summed;
    bool inside;            /* the run is moved along, else summed */
    size_t pieces;          /* stretches of a run */
    size_t outputs, chunks; /* stretches or numbers of the gradient, and sums that make up each */
    size_t terms;           /* stretches that are added up for an output */
} sums;

static inline sums cut_walk(const pass *p, int operand_number)
{
    sums s = {.all = walk_of(p)};
    const ptrdiff_t *moves = s.all.step[operand_number + 1];
    s.moving = s.summed = (walk){.tensors = s.all.tensors, .runs = 1, .n = 1};
    for (int i = 0; i < s.all.axes; i++) {
        walk *to = moves[i] != 0 ? &s.moving : &s.summed;
        to->size[to->axes] = s.all.size[i];
        for (int k = 0; k < s.all.tensors; k++)
            to->step[k][to->axes] = s.all.step[k][i];
        to->axes++;
        to->runs *= s.all.size[i];
    }
    s.inside = s.all.run[operand_number + 1] != 0;
    s.pieces = (s.all.n + FVI_BLOCK - 1) / FVI_BLOCK;
    s.outputs = s.moving.runs * (s.inside ? s.pieces : 1);
    s.terms = s.summed.runs * (s.inside ? 1 : s.pieces);
    s.chunks = (s.terms + FVI_SUMMED - 1) / FVI_SUMMED;
    return s;
}

/* Adds up chunk number `chunk` of an output and puts the sum where it belongs in d. */
static inline void sum_chunk(const pass *p, const sums *s, int operand_number, size_t output,
                             size_t chunk, fv_real *d, copies *c)
{
    const size_t longest = s->all.n < FVI_BLOCK ? s->all.n : FVI_BLOCK;
    const size_t last = s->terms - chunk * FVI_SUMMED;
    const size_t terms = last < FVI_SUMMED ? last : FVI_SUMMED;
    const walker base = walk_to(&s->moving, s->inside ? output / s->pieces : output);
    size_t piece = s->inside ? output % s->pieces : chunk * FVI_SUMMED % s->pieces;
    walker at = walk_to(&s->summed, chunk * FVI_SUMMED / (s->inside ? 1 : s->pieces));
    fv_real sum[FVI_BLOCK];
    memset(sum, 0, longest * sizeof *sum);
    for (size_t i = 0; i < terms; i++) {
        const size_t start = piece * FVI_BLOCK;
        const size_t n = s->all.n - start < FVI_BLOCK ? s->all.n - start : FVI_BLOCK;
        ptrdiff_t place[FVI_WALKED];
        for (int k = 0; k <= p->operands; k++)
            place[k] = base.at[k] + at.at[k];
        run_block(p, &s->all, place, start, n, sum, c);
        if (s->inside || ++piece == s->pieces) {
            piece = s->inside ? piece : 0;
            walk_on(&s->summed, &at);
        }
    }
    d += base.at[operand_number + 1];
    if (s->inside)
        add_to(s->all.n - piece * FVI_BLOCK < longest ? s->all.n - piece * FVI_BLOCK : longest, sum,
               d + piece * FVI_BLOCK);
    else
        *d += lane_sum(longest, sum);
}

/* Adds a pass, summed over where the operand repeats, to its gradient d. The order of additions is fixed by
 * the shapes: FVI_SUMMED stretches one after the other, such chunks in pairs; threads share chunks. */
static inline void run_sums(fv_tape *t, const pass *p, int operand_number, fv_real *d)
{
    if (fv_shape_count(p->shape) == 0)
        return;
    const sums s = cut_walk(p, operand_number);
    const size_t numbers = fv_shape_count(p->in[operand_number].shape),
                 items = s.outputs * s.chunks;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    size_t size = 0;
    fv_real *chunk = d;
    if (s.chunks > 1 && fvi_mul(s.chunks, numbers, &size)) {
        chunk = fvi_tape_take(t, size, sizeof *chunk);
        if (chunk == NULL)
            return;
        memset(chunk, 0, size * sizeof *chunk);
    }
    const size_t longest = s.all.n < FVI_BLOCK ? s.all.n : FVI_BLOCK;
    const int parts =
        parts_of(t, items, 3 * longest * (s.terms < FVI_SUMMED ? s.terms : FVI_SUMMED));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part mine = part_at(items, parts, k);
        copies c;
        memset(c.of, 0, sizeof c.of);
        for (size_t i = mine.from; i < mine.to; i++)
            sum_chunk(p, &s, operand_number, i / s.chunks, i % s.chunks,
                      chunk + i % s.chunks * (s.chunks > 1 ? numbers : 0), &c);
    }
    for (size_t step = 1; step < s.chunks; step *= 2)
        for (size_t i = 0; i + step < s.chunks; i += 2 * step)
            add_to(numbers, chunk + (i + step) * numbers, chunk + i * numbers);
    if (s.chunks > 1)
        add_to(numbers, chunk, d);
    fvi_arena_release(&t->arena, mark);
}

/* ---- ops of one to three operands ------------------------------------------------------------ */

/* A pass over the value y and its inputs. */
static inline pass pass_of(const fv_var *y, loop *run)
{
    static const double none[2];
    pass p = {.run = run, .options = y->options ? y->options : none, .shape = y->value.shape};
    p.operands = y->inputs;
    for (int k = 0; k < y->inputs; k++)
        p.in[k] = (operand){y->in[k]->value.data, sizeof(fv_real), y->in[k]->value.shape};
    p.size = sizeof(fv_real);
    return p;
}

static inline bool run_forward(const fv_tape *t, const fv_var *y, pass p)
{
    p.out = y->value.data;
    run_pass(t, &p);
    return true;
}

/* Adds the terms of the pass to the gradient of input number k. */
static inline void run_backward(fv_tape *t, const fv_var *y, pass p, int k)
{
    bool blank;
    const bool same = fvi_count(y->in[k]) == fvi_count(y);
    fv_real *d = fvi_grad_blank(t, y->in[k], &blank);
    p.y = y->value.data;
    p.dy = y->grad;
    p.out = d;
    p.blank = blank && same;
    if (d != NULL && same)
        run_pass(t, &p);
    else if (d != NULL) {
        if (blank)
            memset(d, 0, fvi_count(y->in[k]) * sizeof *d);
        run_sums(t, &p, k, d);
    }
}

/* ---- ops of one operand ---------------------------------------------------------------------- */

/* Options are NULL or two numbers. */
static inline fv_var *record_unary(fv_tape *t, fvi_op_id id, const char *name, fv_var *x,
                                   const double *options)
{
    const size_t size = options ? 2 * sizeof *options : 0;
    return given(t, name, x) ? fvi_record(t, id, x->value.shape, options, size, 1, &x) : NULL;
}

/* Of the range {low, high, a, b} that x is drawn from, and the options. */
static inline fv_var *unary_sample(fv_sampler *s, fvi_op_id id, const double (*range)[4], int which)
{
    const fv_shape shape[UNARY_SAMPLES] = {FV_SHAPE(4, 9), FV_SHAPE(1), FV_SCALAR,
                                           FV_SHAPE(2, 0, 3)};
    const double *r = range[which / UNARY_SAMPLES];
    return record_unary(fv_sampler_tape(s), id, "sample",
                        fv_sample(s, shape[which % UNARY_SAMPLES], r[0], r[1]), r + 2);
}

#if FVI_ONCE
#define FVI_PUBLIC(...) __VA_ARGS__
#else
#define FVI_PUBLIC(...)
#endif

/* The op y = value, where `gradient` is dx for that dy; both see x and the options a, b, the gradient also y.
 * Behind them stand ranges of samples: {low, high} of x, and a, b. fv_name is written by hand. */
#define FVI_UNARY_AB(name, formula, paper, value, gradient, ...)                                   \
    FVI_UNARY_LOOPS(name, value, gradient)                                                         \
    static bool name##_forward(fv_tape *t, fv_var *y)                                              \
    {                                                                                              \
        return run_forward(t, y, pass_of(y, name##_values));                                       \
    }                                                                                              \
    static void name##_backward(fv_tape *t, fv_var *y)                                             \
    {                                                                                              \
        run_backward(t, y, pass_of(y, name##_gradients), 0);                                       \
    }                                                                                              \
    static const double name##_ranges[][4] = {__VA_ARGS__};                                        \
    static fv_var *name##_sample(fv_sampler *s, int which)                                         \
    {                                                                                              \
        return unary_sample(s, FVI_OP_##name, name##_ranges, which);                               \
    }                                                                                              \
    FVI_OP(name, formula, paper,                                                                   \
           (int)(UNARY_SAMPLES * sizeof name##_ranges / sizeof *name##_ranges))

/* The same without options, and the public fv_name(t, x). */
#define FVI_UNARY(name, formula, paper, value, gradient, ...)                                      \
    FVI_UNARY_AB(name, formula, paper, value, gradient, __VA_ARGS__)                               \
    FVI_PUBLIC(fv_var *fv_##name(fv_tape *t, fv_var *x) {                                          \
        return record_unary(t, FVI_OP_##name, #name, x, NULL);                                     \
    })

/* ---- ops of two operands --------------------------------------------------------------------- */

static inline fv_var *record_binary(fv_tape *t, fvi_op_id id, const char *name, fv_var *a,
                                    fv_var *b)
{
    fv_shape shape;
    if (!given(t, name, a) || !given(t, name, b))
        return NULL;
    if (!broadcast_shapes(a->value.shape, b->value.shape, &shape))
        return fv_refuse(t, name, "%s with %s: shapes do not broadcast", fv_describe(t, a),
                         fv_describe(t, b));
    return fvi_record(t, id, shape, NULL, 0, 2, (fv_var *[]){a, b});
}

/* Each way that two shapes can meet, and (1) an operand with itself. */
static inline fv_var *binary_sample(fv_sampler *s, fvi_op_id id, int which, const double range[4])
{
    const fv_shape of_a[BINARY_SAMPLES] = {
        FV_SHAPE(5, 7),       FV_SHAPE(5, 7), FV_SHAPE(5, 7), FV_SHAPE(5, 1),
        FV_SHAPE(5, 7),       FV_SCALAR,      FV_SHAPE(3, 1), FV_SHAPE(4, 1, 3, 2),
        FV_SHAPE(2, 1, 3, 1), FV_SHAPE(0, 3), FV_SHAPE(1)};
    const fv_shape of_b[BINARY_SAMPLES] = {FV_SHAPE(5, 7), FV_SCALAR,         FV_SHAPE(7),
                                           FV_SHAPE(5, 7), FV_SCALAR,         FV_SHAPE(2, 3),
                                           FV_SHAPE(4),    FV_SHAPE(5, 1, 2), FV_SHAPE(4, 1, 2),
                                           FV_SHAPE(3),    FV_SHAPE(1, 1)};
    fv_var *a = fv_sample(s, of_a[which], range[0], range[1]);
    fv_var *b = which == 1 ? a : fv_sample(s, of_b[which], range[2], range[3]);
    return record_binary(fv_sampler_tape(s), id, "sample", a, b);
}

/* The op y = value of a and b, broadcast, where da and db are gradients for that dy and see also y; the samples'
 * ranges of a and b; and the public fv_name(t, a, b). */
#define FVI_BINARY(name, formula, paper, value, da, db, low_a, high_a, low_b, high_b)              \
    FVI_BINARY_VALUES(name##_values, value)                                                        \
    FVI_BINARY_GRADIENTS(name##_da, da)                                                            \
    FVI_BINARY_GRADIENTS(name##_db, db)                                                            \
    static bool name##_forward(fv_tape *t, fv_var *y)                                              \
    {                                                                                              \
        return run_forward(t, y, pass_of(y, name##_values));                                       \
    }                                                                                              \
    static void name##_backward(fv_tape *t, fv_var *y)                                             \
    {                                                                                              \
        run_backward(t, y, pass_of(y, name##_da), 0);                                              \
        run_backward(t, y, pass_of(y, name##_db), 1);                                              \
    }                                                                                              \
    static fv_var *name##_sample(fv_sampler *s, int which)                                         \
    {                                                                                              \
        return binary_sample(s, FVI_OP_##name, which,                                              \
                             (const double[]){low_a, high_a, low_b, high_b});                      \
    }                                                                                              \
    FVI_OP(name, formula, paper, BINARY_SAMPLES)                                                   \
    FVI_PUBLIC(fv_var *fv_##name(fv_tape *t, fv_var *a, fv_var *b) {                               \
        return record_binary(t, FVI_OP_##name, #name, a, b);                                       \
    })

#endif
