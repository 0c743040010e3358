/* Calls of ops that move, choose and group numbers, for the PyTorch fixtures. */
#include "tests/torch_ops.h"

static fv_var *reshape(fixture *f)
{
    return fv_reshape(f->t, f->x[0], option_shape(f, "shape"));
}

static fv_var *flatten(fixture *f)
{
    return fv_flatten(f->t, f->x[0], option_int(f, "first"), option_int(f, "last"));
}

static fv_var *permute(fixture *f)
{
    return fv_permute(f->t, f->x[0], option_ids(f, "axes"));
}

static fv_var *transpose(fixture *f)
{
    return fv_transpose(f->t, f->x[0], option_int(f, "a"), option_int(f, "b"));
}

static fv_var *expand(fixture *f)
{
    return fv_expand(f->t, f->x[0], option_shape(f, "shape"));
}

static fv_var *concat(fixture *f)
{
    return fv_concat(f->t, f->inputs, f->x, option_int(f, "axis"));
}

static fv_var *stack(fixture *f)
{
    return fv_stack(f->t, f->inputs, f->x, option_int(f, "axis"));
}

/* By sizes, or into equal parts; the case is about one of them. */
static fv_var *split(fixture *f)
{
    fv_var *parts[10];
    const int count =
        option_is(f, "sizes") ? (int)option_count(f, "sizes") : option_int(f, "parts");
    const bool ok =
        fv_split(f->t, f->x[0], option_int(f, "axis"), count, option_sizes(f, "sizes"), parts);
    return ok ? parts[option_int(f, "part")] : NULL;
}

static fv_var *slice(fixture *f)
{
    const fv_range range = {option_int(f, "first"), option_int(f, "end"), option_int(f, "step")};
    return fv_slice(f->t, f->x[0], option_int(f, "axis"), range);
}

static fv_var *pad(fixture *f)
{
    const fv_pad_opts opts = {(fv_pad_mode)option_int(f, "mode"), option_number(f, "value")};
    return fv_pad(f->t, f->x[0], option_int(f, "axis"), (size_t)option_int(f, "before"),
                  (size_t)option_int(f, "after"), &opts);
}

static fv_var *roll(fixture *f)
{
    return fv_roll(f->t, f->x[0], option_int(f, "axis"), option_int(f, "shift"));
}

static fv_var *tile(fixture *f)
{
    return fv_tile(f->t, f->x[0], option_sizes(f, "repeats"));
}

static fv_var *repeat_rows(fixture *f)
{
    return fv_repeat_rows(f->t, f->x[0], (size_t)option_int(f, "count_of"));
}

static fv_var *tril(fixture *f)
{
    return fv_tril(f->t, f->x[0], option_int(f, "diagonal"));
}

static fv_var *triu(fixture *f)
{
    return fv_triu(f->t, f->x[0], option_int(f, "diagonal"));
}

static fv_var *diagonal(fixture *f)
{
    return fv_diagonal(f->t, f->x[0], option_int(f, "diagonal"));
}

static fv_var *one_hot(fixture *f)
{
    return fv_one_hot(f->t, option_ids(f, "ids"), option_count(f, "ids"),
                      (size_t)option_int(f, "classes"));
}

/* ---- choosing -------------------------------------------------------------------------------------------- */

static fv_segments *segments_of(const fixture *f, const char *name)
{
    fv_segments *s = fv_tape_alloc(f->t, 1, sizeof *s); /* fv_backward reads them again */
    *s = option_segments(f, name);
    return s;
}

static fv_var *gather(fixture *f)
{
    return fv_gather(f->t, f->x[0], option_ids(f, "ids"), option_count(f, "ids"));
}

static fv_var *gather_bags(fixture *f)
{
    return fv_gather_bags(f->t, f->x[0], option_ids(f, "ids"), segments_of(f, "segments"));
}

static fv_var *scatter_add(fixture *f)
{
    return fv_scatter_add(f->t, f->x[0], option_ids(f, "ids"), (size_t)option_int(f, "rows"));
}

static fv_var *index_select(fixture *f)
{
    return fv_index_select(f->t, f->x[0], option_int(f, "axis"), option_ids(f, "ids"),
                           option_count(f, "ids"));
}

static fv_var *take_along(fixture *f)
{
    return fv_take_along(f->t, f->x[0], option_int(f, "axis"), option_shape(f, "shape"),
                         option_ids(f, "ids"));
}

static fv_var *masked_fill(fixture *f)
{
    return fv_masked_fill(f->t, f->x[0], option_truths(f), option_number(f, "value"));
}

static fv_var *masked_select(fixture *f)
{
    const int32_t *keep = option_ids(f, "keep");
    const size_t rows = option_count(f, "keep");
    unsigned char *bytes = fv_tape_alloc(f->t, rows + 1, 1);
    for (size_t i = 0; i < rows; i++)
        bytes[i] = (unsigned char)keep[i];
    return fv_masked_select(f->t, f->x[0], bytes, NULL, NULL);
}

/* ---- segments -------------------------------------------------------------------------------------------- */

static fv_var *segment_pick(fixture *f)
{
    return fv_segment_pick(f->t, f->x[0], segments_of(f, "segments"), option_ids(f, "position"));
}

static fv_var *add_positions(fixture *f)
{
    return fv_add_positions(f->t, f->x[0], f->x[1], segments_of(f, "segments"));
}

static fv_var *neighbours(fixture *f)
{
    return fv_neighbours(f->t, f->x[0], segments_of(f, "segments"), option_int(f, "radius"));
}

static fv_var *unpack(fixture *f)
{
    return fv_unpack(f->t, f->x[0], segments_of(f, "segments"), (size_t)option_int(f, "time"));
}

static fv_var *segment_concat(fixture *f)
{
    const fv_segments *joined;
    return fv_segment_concat(f->t, f->x[0], segments_of(f, "segments"), f->x[1],
                             segments_of(f, "other"), &joined);
}

static fv_var *segment_positions(fixture *f)
{
    return as_value(f, option_shape(f, "out"),
                    fv_segment_positions(f->t, segments_of(f, "segments")));
}

const torch_call torch_shape_calls[] = {
    {"reshape", .call = reshape},
    {"squeeze", .along = fv_squeeze},
    {"unsqueeze", .along = fv_unsqueeze},
    {"flatten", .call = flatten},
    {"permute", .call = permute},
    {"transpose", .call = transpose},
    {"expand", .call = expand},
    {"concat", .call = concat},
    {"stack", .call = stack},
    {"split", .call = split},
    {"slice", .call = slice},
    {"pad", .call = pad},
    {"flip", .along = fv_flip},
    {"roll", .call = roll},
    {"tile", .call = tile},
    {"repeat_rows", .call = repeat_rows},
    {"tril", .call = tril},
    {"triu", .call = triu},
    {"diagonal", .call = diagonal},
    {"one_hot", .call = one_hot},
    {"gather", .call = gather},
    {"gather_bags", .call = gather_bags},
    {"scatter_add", .call = scatter_add},
    {"index_select", .call = index_select},
    {"take_along", .call = take_along},
    {"masked_fill", .call = masked_fill},
    {"masked_select", .call = masked_select},
    {"segment_sum", .segments = fv_segment_sum},
    {"segment_mean", .segments = fv_segment_mean},
    {"segment_max", .segments = fv_segment_max},
    {"segment_softmax", .segments = fv_segment_softmax},
    {"segment_first", .segments = fv_segment_first},
    {"segment_last", .segments = fv_segment_last},
    {"segment_reverse", .segments = fv_segment_reverse},
    {"segment_expand", .segments = fv_segment_expand},
    {"pack", .segments = fv_pack},
    {"segment_pick", .call = segment_pick},
    {"add_positions", .call = add_positions},
    {"neighbours", .call = neighbours},
    {"unpack", .call = unpack},
    {"segment_concat", .call = segment_concat},
    {"segment_positions", .call = segment_positions},
    {0},
};
