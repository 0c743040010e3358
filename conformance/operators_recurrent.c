/* Recurrent operators, a step at a time by products and gates; and operators that are not here, and why.
 *
 * X [time, samples, in], weights W [directions, gates * hidden, in], R [directions, gates * hidden,
 * hidden], biases B [directions, 2 * gates * hidden] of both products. One direction, forwards, with the
 * usual activations, and sequences of full length; layout 1 has samples in front. */
#include <string.h>

#include "conformance/conformance.h"

typedef struct {
    call *c;
    size_t time, samples, hidden;
    int gates;
    fv_var *x, *w, *r, *wb, *rb; /* of the only direction; biases NULL without B */
    fv_var *state, *cell;
    fv_var *peephole; /* [3 * hidden] */
} cells;

/* Part i of so many of the first axis. */
static fv_var *part(call *c, fv_var *x, int i, size_t size)
{
    return fv_slice(c->t, x, 0, (fv_range){i * (int)size, (i + 1) * (int)size, 1});
}

/* Rows of a product and its bias that belong to one gate. */
static fv_var *gate(const cells *k, fv_var *x, fv_var *weight, fv_var *bias, int i)
{
    fv_var *b = bias == NULL ? NULL : part(k->c, bias, i, k->hidden);
    return fv_affine(k->c->t, x, part(k->c, weight, i, k->hidden), b);
}

/* W x + R h, gate i. */
static fv_var *both(const cells *k, fv_var *x, int i)
{
    return fv_add(k->c->t, gate(k, x, k->w, k->wb, i), gate(k, k->state, k->r, k->rb, i));
}

static void rnn_step(cells *k, fv_var *x)
{
    k->state = fv_tanh(k->c->t, both(k, x, 0));
}

/* Gates z, r, h: h' = (1 - z) tanh(W x + R (r h)) + z h. Cho et al., 2014, arXiv 1406.1078. */
static void gru_step(cells *k, fv_var *x)
{
    fv_tape *t = k->c->t;
    fv_var *z = fv_sigmoid(t, both(k, x, 0)), *r = fv_sigmoid(t, both(k, x, 1)), *old;
    if (whole(k->c, "linear_before_reset", 0))
        old = fv_mul(t, r, gate(k, k->state, k->r, k->rb, 2));
    else
        old = gate(k, fv_mul(t, r, k->state), k->r, k->rb, 2);
    fv_var *fresh = fv_tanh(t, fv_add(t, gate(k, x, k->w, k->wb, 2), old));
    k->state = fv_lerp(t, fresh, k->state, z);
}

static fv_var *peep(cells *k, fv_var *to, fv_var *cell, int i)
{
    if (k->peephole == NULL)
        return to;
    fv_tape *t = k->c->t;
    return fv_add(t, to, fv_mul(t, cell, part(k->c, k->peephole, i, k->hidden)));
}

/* Gates i, o, f, c. Hochreiter, Schmidhuber, 1997; peepholes: Gers, Schmidhuber, 2000. */
static void lstm_step(cells *k, fv_var *x)
{
    fv_tape *t = k->c->t;
    fv_var *i = fv_sigmoid(t, peep(k, both(k, x, 0), k->cell, 0)),
           *f = fv_sigmoid(t, peep(k, both(k, x, 2), k->cell, 2)),
           *fresh = fv_tanh(t, both(k, x, 3));
    k->cell = fv_add(t, fv_mul(t, f, k->cell), fv_mul(t, i, fresh));
    fv_var *o = fv_sigmoid(t, peep(k, both(k, x, 1), k->cell, 1));
    k->state = fv_mul(t, o, fv_tanh(t, k->cell));
}

static const char *refusal(const call *c)
{
    if (has(c, "direction") || input(c, 1)->value.shape.size[0] != 1)
        return "directions other than forwards";
    if (has(c, "activations") || has(c, "clip") || has(c, "input_forget"))
        return "other activations, clipping or coupled gates";
    const fv_var *lengths = input(c, 4);
    const size_t time = input(c, 0)->value.shape.size[whole(c, "layout", 0)];
    for (size_t i = 0; lengths != NULL && i < fv_shape_count(lengths->value.shape); i++)
        if (fv_re(lengths->value.data[i]) != (double)time)
            return "sequences that end before the others";
    return NULL;
}

/* The only direction of a weight or bias. */
static fv_var *only(call *c, int i)
{
    return input(c, i) == NULL ? NULL : fv_squeeze(c->t, input(c, i), 0);
}

/* The state at the start, [samples, hidden]. */
static fv_var *start(const cells *k, int i)
{
    call *c = k->c;
    if (input(c, i) == NULL)
        return constant(c, FV_SHAPE(k->samples, k->hidden), 0);
    return fv_squeeze(c->t, input(c, i), whole(c, "layout", 0));
}

static fv_var *recur(call *c, int gates, void (*step)(cells *k, fv_var *x))
{
    cells k = {.c = c, .gates = gates, .x = input(c, 0)};
    const bool samples_first = whole(c, "layout", 0);
    if (refusal(c) != NULL)
        return lacks(c, refusal(c));
    if (samples_first)
        k.x = fv_transpose(c->t, k.x, 0, 1);
    if (k.x == NULL)
        return NULL;
    k.time = k.x->value.shape.size[0];
    k.samples = k.x->value.shape.size[1];
    k.hidden = input(c, 2)->value.shape.size[2];
    k.w = only(c, 1);
    k.r = only(c, 2);
    if (input(c, 3) != NULL) {
        k.wb = part(c, only(c, 3), 0, (size_t)gates * k.hidden);
        k.rb = part(c, only(c, 3), 1, (size_t)gates * k.hidden);
    }
    k.state = start(&k, 5);
    k.cell = start(&k, 6);
    k.peephole = only(c, 7);
    fv_var *states[MOST];
    if (k.time > MOST)
        return lacks(c, "sequences longer than the table's steps");
    for (size_t i = 0; i < k.time; i++) {
        fv_var *x = fv_squeeze(c->t, part(c, k.x, (int)i, 1), 0);
        step(&k, x);
        states[i] = k.state;
    }
    /* Y [time, directions, samples, hidden], or [samples, time, directions, hidden]; then the last
     * state and cell, [directions, samples, hidden] or [samples, directions, hidden]. */
    const int axis = samples_first ? 1 : 0;
    give(c, 1, fv_unsqueeze(c->t, k.state, axis));
    if (wants(c, 2))
        give(c, 2, fv_unsqueeze(c->t, k.cell, axis));
    fv_var *y = fv_stack(c->t, (int)k.time, states, axis);
    return fv_unsqueeze(c->t, y, samples_first ? 2 : 1);
}

static fv_var *rnn(call *c)
{
    return recur(c, 1, rnn_step);
}

static fv_var *gru(call *c)
{
    return recur(c, 3, gru_step);
}

static fv_var *lstm(call *c)
{
    return recur(c, 4, lstm_step);
}

const operation recurrent_operations[] = {
    {"RNN", .run = rnn, .needs = 3},
    {"GRU", .run = gru, .needs = 3},
    {"LSTM", .run = lstm, .needs = 3},
    {0},
};

#define NO_OP "no such op"
const operation missing_operations[] = {
    {"Adagrad", .lacks = "an optimiser of this rule"},
    {"Cast", .lacks = "a second type: numbers are of the build's type"},
    {"Ceil", .lacks = NO_OP ": rounding has no gradient"},
    {"Floor", .lacks = NO_OP ": rounding has no gradient"},
    {"Mod", .lacks = NO_OP ": the rest of a division"},
    {"Det", .lacks = NO_OP ": determinant"},
    {"DFT", .lacks = NO_OP ": Fourier transform, complex numbers"},
    {"STFT", .lacks = NO_OP ": Fourier transform, complex numbers"},
    {"NonZero", .lacks = NO_OP ": its result's size hangs on the numbers"},
    {"Unique", .lacks = NO_OP ": its result's size hangs on the numbers"},
    {0},
};
