/* Calls of the softmax family, norms and losses, for the PyTorch fixtures. */
#include "tests/torch_ops.h"

/* ---- norms: weight and bias are the second and third input, when there are any ------------------------------ */

static fv_norm_opts norm_opts(const fixture *f)
{
    return (fv_norm_opts){option_number(f, "eps"), option_int(f, "axes_count")};
}

static fv_var *layer_norm(fixture *f)
{
    const fv_norm_opts opts = norm_opts(f);
    return fv_layer_norm(f->t, f->x[0], f->x[1], f->x[2], &opts);
}

static fv_var *rms_norm(fixture *f)
{
    const fv_norm_opts opts = norm_opts(f);
    return fv_rms_norm(f->t, f->x[0], f->x[1], &opts);
}

static fv_var *group_norm(fixture *f)
{
    const fv_norm_opts opts = norm_opts(f);
    return fv_group_norm(f->t, f->x[0], (size_t)option_int(f, "groups"), f->x[1], f->x[2], &opts);
}

static fv_var *instance_norm(fixture *f)
{
    const fv_norm_opts opts = norm_opts(f);
    return fv_instance_norm(f->t, f->x[0], f->x[1], f->x[2], &opts);
}

static fv_var *l2_normalize(fixture *f)
{
    const fv_norm_opts opts = norm_opts(f);
    return fv_l2_normalize(f->t, f->x[0], option_int(f, "axis"), &opts);
}

static fv_var *batch_norm(fixture *f)
{
    const fv_batch_norm_opts opts = {.eps = option_number(f, "eps")};
    return fv_batch_norm(f->t, f->x[0], f->x[1], f->x[2], &opts);
}

static fv_var *batch_norm_fixed(fixture *f)
{
    const fv_batch_norm_opts opts = {.eps = option_number(f, "eps"),
                                     .mean = f->x[3]->value.data,
                                     .variance = f->x[4]->value.data};
    return fv_batch_norm(f->t, f->x[0], f->x[1], f->x[2], &opts);
}

static fv_var *batch_norm_statistics(fixture *f)
{
    const fv_shape shape = option_shape(f, "out");
    fv_real *both = fv_tape_alloc(f->t, fv_shape_count(shape), sizeof *both);
    const fv_batch_norm_opts opts = {.batch_mean = both, .batch_variance = both + shape.size[1]};
    return fv_batch_norm(f->t, f->x[0], NULL, NULL, &opts) == NULL ? NULL
                                                                   : fv_constant(f->t, shape, both);
}

/* ---- losses ------------------------------------------------------------------------------------------------ */

static fv_cross_entropy_opts class_opts(const fixture *f)
{
    return (fv_cross_entropy_opts){option_number(f, "smoothing"), option_reals(f, "weight")};
}

static fv_var *cross_entropy(fixture *f)
{
    const fv_cross_entropy_opts opts = class_opts(f);
    return fv_cross_entropy_sum(f->t, f->x[0], option_ids(f, "labels"), &opts, &f->count);
}

static fv_var *nll(fixture *f)
{
    const fv_cross_entropy_opts opts = class_opts(f);
    return fv_nll_sum(f->t, f->x[0], option_ids(f, "labels"), &opts, &f->count);
}

static fv_var *soft_cross_entropy(fixture *f)
{
    const fv_cross_entropy_opts opts = class_opts(f);
    return fv_soft_cross_entropy_sum(f->t, f->x[0], f->x[1], &opts, &f->count);
}

static fv_var *bce_with_logits(fixture *f)
{
    const fv_bce_opts opts = {option_reals(f, "pos_weight")};
    return fv_bce_with_logits_sum(f->t, f->x[0], f->x[1], &opts, &f->count);
}

static fv_var *mse(fixture *f)
{
    return fv_mse_sum(f->t, f->x[0], f->x[1], &f->count);
}

static fv_var *l1(fixture *f)
{
    return fv_l1_sum(f->t, f->x[0], f->x[1], &f->count);
}

static fv_var *huber(fixture *f)
{
    return fv_huber_sum(f->t, f->x[0], f->x[1], option_number(f, "delta"), &f->count);
}

static fv_var *kl_div(fixture *f)
{
    return fv_kl_div_sum(f->t, f->x[0], f->x[1], &f->count);
}

static fv_var *cosine_embedding(fixture *f)
{
    return fv_cosine_embedding_sum(f->t, f->x[0], f->x[1], option_ids(f, "labels"),
                                   option_number(f, "margin"), &f->count);
}

static fv_var *hinge(fixture *f)
{
    return fv_hinge_sum(f->t, f->x[0], option_ids(f, "labels"), option_number(f, "margin"),
                        &f->count);
}

static fv_var *ctc(fixture *f)
{
    const fv_ctc_opts opts = {option_int(f, "blank"), option_int(f, "zero_infinity")};
    fv_segments *both = fv_tape_alloc(f->t, 2, sizeof *both);
    both[0] = option_segments(f, "segments");
    both[1] = option_segments(f, "targets");
    return fv_ctc_sum(f->t, fv_log_softmax(f->t, f->x[0], 1), &both[0], option_ids(f, "labels"),
                      &both[1], &opts, &f->count);
}

const torch_call torch_row_calls[] = {
    {"softmax", .along = fv_softmax},
    {"log_softmax", .along = fv_log_softmax},
    {"softmax_plus_one", .along = fv_softmax_plus_one},
    {"sparsemax", .along = fv_sparsemax},
    {"glu", .along = fv_glu},
    {"swiglu", .along = fv_swiglu},
    {"geglu", .along = fv_geglu},
    {"layer_norm", .call = layer_norm},
    {"rms_norm", .call = rms_norm},
    {"group_norm", .call = group_norm},
    {"instance_norm", .call = instance_norm},
    {"l2_normalize", .call = l2_normalize},
    {"batch_norm", .call = batch_norm},
    {"batch_norm_fixed", .call = batch_norm_fixed},
    {"batch_norm_statistics", .call = batch_norm_statistics},
    {"cross_entropy_sum", .call = cross_entropy},
    {"nll_sum", .call = nll},
    {"soft_cross_entropy_sum", .call = soft_cross_entropy},
    {"bce_with_logits_sum", .call = bce_with_logits},
    {"mse_sum", .call = mse},
    {"l1_sum", .call = l1},
    {"huber_sum", .call = huber},
    {"kl_div_sum", .call = kl_div},
    {"cosine_embedding_sum", .call = cosine_embedding},
    {"hinge_sum", .call = hinge},
    {"ctc_sum", .call = ctc},
    {0},
};
