/* Operators that move numbers or ask for their places: shapes, cuts, padding, tiles. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

/* Counted from 0, and cut to 0 .. rank. */
static int clamp_axis(int64_t axis, int rank)
{
    axis += axis < 0 ? rank : 0;
    return axis < 0 ? 0 : axis > rank ? rank : (int)axis;
}

static size_t count_of(const fv_var *x)
{
    return fv_shape_count(x->value.shape);
}

/* 0 keeps the size (unless allowzero), -1 is what the count leaves. */
static fv_var *reshape(call *c)
{
    fv_var *x = input(c, 0);
    int64_t sizes[MOST] = {0};
    fv_shape shape = {.rank = list_or_input(c, "shape", 1, sizes)};
    size_t known = 1;
    int open = -1;
    if (shape.rank > FV_MAX_RANK)
        return lacks(c, "shapes of more than six axes");
    for (int i = 0; i < shape.rank; i++) {
        const bool keep = sizes[i] == 0 && !whole(c, "allowzero", 0);
        shape.size[i] = keep ? x->value.shape.size[i] : (size_t)sizes[i];
        if (sizes[i] == -1)
            open = i;
        else
            known *= shape.size[i];
    }
    if (open >= 0)
        shape.size[open] = known > 0 ? count_of(x) / known : 0;
    return fv_reshape(c->t, x, shape);
}

/* Bit i: axis i of a tensor of that rank is in the list. */
static unsigned axis_set(const int64_t *axes, int count, int rank)
{
    unsigned set = 0;
    for (int i = 0; i < count; i++)
        set |= 1U << ((axes[i] < 0 ? axes[i] + rank : axes[i]) & 31);
    return set;
}

static fv_var *squeeze(call *c)
{
    fv_var *x = input(c, 0);
    int64_t axes[MOST] = {0};
    const int count = list_or_input(c, "axes", 1, axes), rank = x->value.shape.rank;
    const unsigned set = axis_set(axes, count, rank);
    for (int i = rank - 1; i >= 0; i--)
        if (count == 0 ? x->value.shape.size[i] == 1 : set >> i & 1)
            x = fv_squeeze(c->t, x, i);
    return x;
}

static fv_var *unsqueeze(call *c)
{
    fv_var *x = input(c, 0);
    int64_t axes[MOST] = {0};
    const int count = list_or_input(c, "axes", 1, axes), rank = x->value.shape.rank + count;
    if (rank > FV_MAX_RANK)
        return lacks(c, "more than six axes");
    const unsigned set = axis_set(axes, count, rank);
    for (int i = 0; i < rank; i++)
        if (set >> i & 1)
            x = fv_unsqueeze(c->t, x, i);
    return x;
}

/* [product of the axes before, of the others] */
static fv_var *flatten(call *c)
{
    fv_var *x = input(c, 0);
    size_t before = 1, after = 1;
    const int axis = clamp_axis(whole(c, "axis", 1), x->value.shape.rank);
    for (int i = 0; i < x->value.shape.rank; i++)
        *(i < axis ? &before : &after) *= x->value.shape.size[i];
    return fv_reshape(c->t, x, FV_SHAPE(before, after));
}

static fv_var *transpose(call *c)
{
    int64_t given[MOST] = {0};
    int axes[FV_MAX_RANK];
    const int rank = input(c, 0)->value.shape.rank, count = list(c, "perm", given);
    for (int i = 0; i < rank; i++)
        axes[i] = count == 0 ? rank - 1 - i : (int)given[i];
    return fv_permute(c->t, input(c, 0), axes);
}

/* The shape is broadcast as well: a size of 1 there keeps that of x. */
static fv_var *expand(call *c)
{
    fv_var *x = input(c, 0);
    int64_t sizes[MOST] = {0};
    const int count = input_list(c, 1, sizes), own = x->value.shape.rank;
    fv_shape shape = {.rank = count > own ? count : own};
    for (int i = 1; i <= shape.rank; i++) {
        const size_t a = i <= own ? x->value.shape.size[own - i] : 1;
        const size_t b = i <= count ? (size_t)sizes[count - i] : 1;
        shape.size[shape.rank - i] = a == 1 ? b : a;
    }
    return fv_expand(c->t, x, shape);
}

static fv_var *concat(call *c)
{
    fv_var *x[MOST];
    for (int i = 0; i < c->inputs; i++)
        x[i] = input(c, i);
    return fv_concat(c->t, c->inputs, x, axis_of(c, x[0], whole(c, "axis", 1)));
}

/* By given sizes, or into as many parts as there are outputs, the last one smaller. */
static fv_var *split(call *c)
{
    fv_var *x = input(c, 0), *parts[MOST];
    int64_t given[MOST] = {0};
    size_t sizes[MOST];
    const int axis = axis_of(c, x, whole(c, "axis", 0)),
              count = list_or_input(c, "split", 1, given);
    const size_t size = x->value.shape.size[axis], n = (size_t)c->outputs,
                 part = (size + n - 1) / n;
    for (int i = 0; i < c->outputs; i++)
        sizes[i] = count > 0 ? (size_t)given[i] : i + 1 < c->outputs ? part : size - part * (n - 1);
    if (!fv_split(c->t, x, axis, c->outputs, sizes, parts))
        return NULL;
    for (int i = 1; i < c->outputs; i++)
        give(c, i, parts[i]);
    return parts[0];
}

static int clamp_to_int(int64_t x)
{
    return x > INT32_MAX ? INT32_MAX : x < -INT32_MAX ? -INT32_MAX : (int)x;
}

static fv_var *slice(call *c)
{
    fv_var *x = input(c, 0);
    int64_t starts[MOST] = {0}, ends[MOST] = {0}, axes[MOST] = {0}, steps[MOST] = {0};
    const int count = list_or_input(c, "starts", 1, starts),
              with_axes = list_or_input(c, "axes", 3, axes), with_steps = input_list(c, 4, steps);
    list_or_input(c, "ends", 2, ends);
    for (int i = 0; i < count && x != NULL; i++) {
        const int axis = axis_of(c, x, with_axes > 0 ? axes[i] : i);
        const int64_t size = (int64_t)x->value.shape.size[axis];
        const int step = with_steps > 0 ? clamp_to_int(steps[i]) : 1;
        int end = clamp_to_int(ends[i]);
        if (step < 0 && ends[i] < -size)
            end = FV_END; /* down to and with 0 */
        x = fv_slice(c->t, x, axis, (fv_range){clamp_to_int(starts[i]), end, step});
    }
    return x;
}

static fv_var *pad(call *c)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    fv_var *x = input(c, 0);
    fv_pad_opts opts = {.value = number(c, "value", input_number(c, 2, 0))};
    int64_t pads[MOST] = {0}, axes[MOST] = {0};
    const int with_axes = input_list(c, 3, axes), count = list_or_input(c, "pads", 1, pads) / 2;
    for (int i = 0; i < 4; i++)
        if (strcmp(text(c, "mode", "constant"), modes[i]) == 0)
            opts.mode = (fv_pad_mode)i;
    for (int i = 0; i < count; i++) {
        const int axis = axis_of(c, x, with_axes > 0 ? axes[i] : i);
        if (pads[i] < 0 || pads[i + count] < 0)
            return lacks(c, "padding of less than nothing");
        if (pads[i] > 0 || pads[i + count] > 0)
            x = fv_pad(c->t, x, axis, (size_t)pads[i], (size_t)pads[i + count], &opts);
    }
    return x;
}

static fv_var *tile(call *c)
{
    int64_t given[MOST] = {0};
    size_t repeats[MOST] = {0};
    const int count = input_list(c, 1, given);
    for (int i = 0; i < count; i++)
        repeats[i] = (size_t)given[i];
    return fv_tile(c->t, input(c, 0), repeats);
}

static fv_var *triangle(call *c)
{
    const int diagonal = clamp_to_int((int64_t)input_number(c, 1, 0));
    return whole(c, "upper", 1) ? fv_triu(c->t, input(c, 0), diagonal)
                                : fv_tril(c->t, input(c, 0), diagonal);
}

static size_t block_size(const call *c)
{
    const int size = whole(c, "blocksize", 1);
    return size > 0 ? (size_t)size : 1;
}

/* [n, b b channels, h, w] -> [n, channels, h b, w b]: the channels hold the places of a block outside
 * (DCR) or inside (CRD). */
static fv_var *depth_to_space(call *c)
{
    fv_var *x = input(c, 0);
    const size_t *size = x->value.shape.size, b = block_size(c);
    const size_t n = size[0], d = size[1] / (b * b), h = size[2], w = size[3];
    const bool inside = strcmp(text(c, "mode", "DCR"), "CRD") == 0;
    x = fv_reshape(c->t, x, inside ? FV_SHAPE(n, d, b, b, h, w) : FV_SHAPE(n, b, b, d, h, w));
    x = fv_permute(c->t, x,
                   inside ? (const int[]){0, 1, 4, 2, 5, 3} : (const int[]){0, 3, 4, 1, 5, 2});
    return fv_reshape(c->t, x, FV_SHAPE(n, d, h * b, w * b));
}

static fv_var *space_to_depth(call *c)
{
    fv_var *x = input(c, 0);
    const size_t *size = x->value.shape.size, b = block_size(c);
    const size_t n = size[0], d = size[1], h = size[2] / b, w = size[3] / b;
    x = fv_reshape(c->t, x, FV_SHAPE(n, d, h, b, w, b));
    x = fv_permute(c->t, x, (const int[]){0, 3, 5, 1, 2, 4});
    return fv_reshape(c->t, x, FV_SHAPE(n, b * b * d, h, w));
}

/* ---- what a program asks of a shape, or makes from one --------------------------------------------- */

static fv_var *shape_of(call *c)
{
    const fv_shape shape = input(c, 0)->value.shape;
    const int first = clamp_axis(whole(c, "start", 0), shape.rank),
              end = clamp_axis(whole(c, "end", shape.rank), shape.rank);
    double sizes[FV_MAX_RANK];
    for (int i = first; i < end; i++)
        sizes[i - first] = (double)shape.size[i];
    return from_numbers(c, FV_SHAPE((size_t)(end > first ? end - first : 0)), sizes);
}

static fv_var *size_of(call *c)
{
    return constant(c, FV_SCALAR, (double)count_of(input(c, 0)));
}

/* The tensor that an attribute names. */
static fv_var *attribute_tensor(call *c)
{
    fv_error error = {0};
    fv_tensor x;
    if (!read_tensor(c->t, c->folder, json_object_get(c->attributes, "value"), &x, &error))
        return fv_constant(c->t, FV_SCALAR, NULL);
    return fv_constant(c->t, x.shape, x.data);
}

static fv_var *constant_of_shape(call *c)
{
    int64_t sizes[MOST] = {0};
    fv_shape shape = {.rank = input_list(c, 0, sizes)};
    for (int i = 0; i < shape.rank; i++)
        shape.size[i] = (size_t)sizes[i];
    fv_var *one = has(c, "value") ? attribute_tensor(c) : constant(c, FV_SHAPE(1), 0);
    return fv_expand(c->t, fv_reshape(c->t, one, FV_SHAPE(1)), shape);
}

/* Row i is one at column i + k. */
static fv_var *eye_like(call *c)
{
    const fv_shape shape = input(c, 0)->value.shape;
    int32_t *ids = fv_tape_alloc(c->t, shape.size[0] + 1, sizeof *ids);
    for (size_t i = 0; ids != NULL && i < shape.size[0]; i++) {
        const long at = (long)i + whole(c, "k", 0);
        ids[i] = at >= 0 && at < (long)shape.size[1] ? (int32_t)at : -1;
    }
    return fv_one_hot(c->t, ids, shape.size[0], shape.size[1]);
}

/* start, start + delta, .. before limit. */
static fv_var *range(call *c)
{
    const double delta = input_number(c, 2, 1);
    const double n = ceil((input_number(c, 1, 0) - input_number(c, 0, 0)) / delta);
    fv_var *steps = constant(c, FV_SHAPE((size_t)(n > 0 ? n : 0)), delta);
    return fv_add(c->t, fv_cumsum(c->t, steps, 0, &(fv_scan_opts){.exclusive = true}), input(c, 0));
}

/* sum of share[k] cos(2 pi k i / n), of as many terms, with n - 1 in place of n when not periodic. */
static fv_var *window(call *c, const double *share, int terms)
{
    const double size = input_number(c, 0, 0), n = whole(c, "periodic", 1) ? size : size - 1;
    fv_var *ones = constant(c, FV_SHAPE((size_t)size), 1), *y = fv_scale(c->t, ones, share[0]);
    fv_var *place = fv_cumsum(c->t, ones, 0, &(fv_scan_opts){.exclusive = true});
    for (int k = 1; k < terms; k++) {
        fv_var *angle = fv_scale(c->t, place, 2 * acos(-1.0) * k / n);
        y = fv_add(c->t, y, fv_scale(c->t, fv_cos(c->t, angle), share[k]));
    }
    return y;
}

static fv_var *hann(call *c)
{
    return window(c, (const double[]){0.5, -0.5}, 2);
}

static fv_var *hamming(call *c)
{
    return window(c, (const double[]){25.0 / 46, -21.0 / 46}, 2);
}

static fv_var *blackman(call *c)
{
    return window(c, (const double[]){0.42, -0.5, 0.08}, 3);
}

const operation shape_operations[] = {
    {"Reshape", .run = reshape},
    {"Squeeze", .run = squeeze},
    {"Unsqueeze", .run = unsqueeze},
    {"Flatten", .run = flatten},
    {"Transpose", .run = transpose},
    {"Expand", .run = expand},
    {"Concat", .run = concat},
    {"Split", .run = split},
    {"Slice", .run = slice},
    {"Pad", .run = pad},
    {"Tile", .run = tile},
    {"Trilu", .run = triangle},
    {"DepthToSpace", .run = depth_to_space},
    {"SpaceToDepth", .run = space_to_depth},
    {"Shape", .run = shape_of},
    {"Size", .run = size_of},
    {"Constant", .run = attribute_tensor, .needs = FV_NONE},
    {"ConstantOfShape", .run = constant_of_shape},
    {"EyeLike", .run = eye_like},
    {"Range", .run = range},
    {"HannWindow", .run = hann},
    {"HammingWindow", .run = hamming},
    {"BlackmanWindow", .run = blackman},
    {0},
};
