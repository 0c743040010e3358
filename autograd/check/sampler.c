/* The inputs of a function under check: the same numbers on every call, plus a step. */
#include "autograd/check/check.h"

#include <math.h>
#include <string.h>

fv_tape *fv_sampler_tape(fv_sampler *s)
{
    return s->tape;
}

fv_rng fv_sampler_rng(const fv_sampler *s)
{
    return fv_rng_make(s->seed, 1, "sampler");
}

fv_rng fvi_direction(const fv_sampler *s, int input)
{
    char name[32];
    snprintf(name, sizeof name, "direction %d", input);
    return fv_rng_make(s->direction, 0, name);
}

double fvi_share(const fv_sampler *s, fv_rng direction, int input, size_t i)
{
    if (s->only >= 0 && s->only != input)
        return 0;
    if (s->only_index != SIZE_MAX)
        return s->only_index == i;
    if (s->end > 0 && (i < s->first || i >= s->end))
        return 0;
    if (s->along == NULL)
        return fv_rng_normal(direction, i);
    const fv_real *data = s->along[input].data;
    return data ? (double)fv_re(data[i]) : 0;
}

void fvi_move(const fv_sampler *s, int input, size_t count, fv_real *data)
{
    if (fv_re(s->step) == 0 && fv_im(s->step) == 0) /* keeps the bits, of -0 too */
        return;
    if (s->only >= 0 && s->only != input)
        return;
    const fv_rng direction = fvi_direction(s, input);
    for (size_t i = 0; i < count; i++) {
        const double share = fvi_share(s, direction, input, i);
        if (share != 0)
            data[i] += s->step * (fv_real)share;
    }
}

/* Makes room for one more input; the list is the tape's, gone with the next call. */
static bool room_for_input(fv_sampler *s)
{
    if (s->inputs == 0)
        s->room = 0;
    if (s->inputs < s->room)
        return true;
    const int room = s->room > 0 ? 2 * s->room : 16;
    fv_var **list = fv_tape_alloc(s->tape, (size_t)room, sizeof *list);
    if (list == NULL)
        return false;
    if (s->inputs > 0)
        memcpy(list, s->input, (size_t)s->inputs * sizeof(fv_var *));
    s->input = list;
    s->room = room;
    return true;
}

static fv_var *hand_out(fv_sampler *s, fv_shape shape, fv_real *data)
{
    if (data == NULL || !room_for_input(s))
        return NULL;
    fvi_move(s, s->inputs, fv_shape_count(shape), data);
    fv_var *x = fv_input(s->tape, shape, data);
    if (x != NULL)
        s->input[s->inputs++] = x;
    return x;
}

fv_var *fv_sample(fv_sampler *s, fv_shape shape, double low, double high)
{
    char name[32];
    snprintf(name, sizeof name, "input %d", s->inputs);
    fv_rng rng = fv_rng_make(s->seed, 0, name);
    size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(s->tape, count, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++) {
        double x = low + (high - low) * fv_rng_uniform(rng, i);
        if (fabs(x) < 0.05) /* away from the kinks at zero */
            x = high >= 0.05 ? 0.05 + fabs(x) : -0.05 - fabs(x);
        data[i] = (fv_real)x;
    }
    return hand_out(s, shape, data);
}

fv_var *fv_sample_from(fv_sampler *s, fv_shape shape, const fv_real *numbers)
{
    size_t count = fv_shape_count(shape);
    if (numbers == NULL)
        return fv_refuse(s->tape, "sample", "no numbers");
    fv_real *data = fv_tape_alloc(s->tape, count, sizeof *data);
    if (data != NULL)
        memcpy(data, numbers, count * sizeof *data);
    return hand_out(s, shape, data);
}
