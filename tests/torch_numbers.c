/* Calls of ops number by number and over axes, for the PyTorch fixtures. */
#include "tests/torch_ops.h"

static fv_var *leaky_relu(fixture *f)
{
    return fv_leaky_relu(f->t, f->x[0], option_number(f, "slope"));
}

static fv_var *elu(fixture *f)
{
    return fv_elu(f->t, f->x[0], option_number(f, "alpha"));
}

static fv_var *scale(fixture *f)
{
    return fv_scale(f->t, f->x[0], option_number(f, "factor"));
}

static fv_var *shift(fixture *f)
{
    return fv_shift(f->t, f->x[0], option_number(f, "offset"));
}

static fv_var *power(fixture *f)
{
    return fv_pow(f->t, f->x[0], option_number(f, "exponent"));
}

static fv_var *clamp(fixture *f)
{
    return fv_clamp(f->t, f->x[0], option_number(f, "low"), option_number(f, "high"));
}

static fv_var *lerp(fixture *f)
{
    return fv_lerp(f->t, f->x[0], f->x[1], f->x[2]);
}

static fv_var *where(fixture *f)
{
    return fv_where(f->t, option_truths(f), f->x[0], f->x[1]);
}

static fv_var *add_many(fixture *f)
{
    return fv_add_many(f->t, f->inputs, f->x);
}

static fv_var *compare(fixture *f)
{
    const fv_bools yes = fv_compare(f->t, f->x[0], (fv_relation)option_int(f, "relation"), f->x[1]);
    const size_t count = fv_shape_count(yes.shape);
    int32_t *numbers = fv_tape_alloc(f->t, count + 1, sizeof *numbers);
    for (size_t i = 0; yes.data != NULL && i < count; i++)
        numbers[i] = yes.data[i];
    return yes.data == NULL ? NULL : as_value(f, yes.shape, numbers);
}

/* ---- over axes ------------------------------------------------------------------------------------------- */

/* The axes that a call with more options is over; false: all. */
static bool axes_of(const fixture *f, fv_axes *axes)
{
    const int32_t *axis = option_ids(f, "axes");
    *axes = (fv_axes){.count = (int)option_count(f, "axes"), .keep = option_int(f, "keep")};
    for (int i = 0; i < axes->count; i++)
        axes->axis[i] = axis[i];
    return axis != NULL;
}

static fv_var *variance(fixture *f)
{
    fv_axes axes;
    const bool some = axes_of(f, &axes);
    return fv_variance(f->t, f->x[0], some ? &axes : NULL, option_number(f, "correction"));
}

static fv_var *deviation(fixture *f)
{
    fv_axes axes;
    const bool some = axes_of(f, &axes);
    return fv_std(f->t, f->x[0], some ? &axes : NULL, option_number(f, "correction"));
}

static fv_var *vector_norm(fixture *f)
{
    fv_axes axes;
    const bool some = axes_of(f, &axes);
    return fv_vector_norm(f->t, f->x[0], some ? &axes : NULL, option_number(f, "p"));
}

static fv_scan_opts scan_opts(const fixture *f)
{
    return (fv_scan_opts){option_int(f, "exclusive"), option_int(f, "reverse")};
}

static fv_var *cumsum(fixture *f)
{
    const fv_scan_opts opts = scan_opts(f);
    return fv_cumsum(f->t, f->x[0], option_int(f, "axis"), &opts);
}

static fv_var *cumprod(fixture *f)
{
    const fv_scan_opts opts = scan_opts(f);
    return fv_cumprod(f->t, f->x[0], option_int(f, "axis"), &opts);
}

static fv_var *argmax(fixture *f)
{
    return as_value(f, option_shape(f, "out"), fv_argmax(f->t, f->x[0], option_int(f, "axis")));
}

static fv_var *argmin(fixture *f)
{
    return as_value(f, option_shape(f, "out"), fv_argmin(f->t, f->x[0], option_int(f, "axis")));
}

static fv_var *sort_with(fixture *f, const int32_t **order)
{
    const fv_sort_opts opts = {.descending = option_int(f, "descending"), .order = order};
    return fv_sort(f->t, f->x[0], option_int(f, "axis"), &opts);
}

static fv_var *sort(fixture *f)
{
    return sort_with(f, NULL);
}

static fv_var *sort_order(fixture *f)
{
    const int32_t *order = NULL;
    fv_var *y = sort_with(f, &order);
    return y == NULL ? NULL : as_value(f, y->value.shape, order);
}

static fv_var *topk(fixture *f)
{
    const fv_sort_opts opts = {.smallest = option_int(f, "smallest")};
    return fv_topk(f->t, f->x[0], option_int(f, "axis"), (size_t)option_int(f, "k"), &opts);
}

const torch_call torch_number_calls[] = {
    {"neg", .unary = fv_neg},
    {"abs", .unary = fv_abs},
    {"square", .unary = fv_square},
    {"reciprocal", .unary = fv_reciprocal},
    {"sqrt", .unary = fv_sqrt},
    {"rsqrt", .unary = fv_rsqrt},
    {"exp", .unary = fv_exp},
    {"expm1", .unary = fv_expm1},
    {"log", .unary = fv_log},
    {"log1p", .unary = fv_log1p},
    {"sin", .unary = fv_sin},
    {"cos", .unary = fv_cos},
    {"tan", .unary = fv_tan},
    {"asin", .unary = fv_asin},
    {"acos", .unary = fv_acos},
    {"atan", .unary = fv_atan},
    {"sinh", .unary = fv_sinh},
    {"cosh", .unary = fv_cosh},
    {"asinh", .unary = fv_asinh},
    {"acosh", .unary = fv_acosh},
    {"atanh", .unary = fv_atanh},
    {"erf", .unary = fv_erf},
    {"relu", .unary = fv_relu},
    {"selu", .unary = fv_selu},
    {"gelu", .unary = fv_gelu},
    {"gelu_tanh", .unary = fv_gelu_tanh},
    {"silu", .unary = fv_silu},
    {"mish", .unary = fv_mish},
    {"softplus", .unary = fv_softplus},
    {"sigmoid", .unary = fv_sigmoid},
    {"log_sigmoid", .unary = fv_log_sigmoid},
    {"tanh", .unary = fv_tanh},
    {"hardtanh", .unary = fv_hardtanh},
    {"hardsigmoid", .unary = fv_hardsigmoid},
    {"hardswish", .unary = fv_hardswish},
    {"softsign", .unary = fv_softsign},
    {"leaky_relu", .call = leaky_relu},
    {"elu", .call = elu},
    {"scale", .call = scale},
    {"shift", .call = shift},
    {"pow", .call = power},
    {"clamp", .call = clamp},
    {"add", .binary = fv_add},
    {"sub", .binary = fv_sub},
    {"mul", .binary = fv_mul},
    {"div", .binary = fv_div},
    {"power", .binary = fv_power},
    {"minimum", .binary = fv_minimum},
    {"maximum", .binary = fv_maximum},
    {"lerp", .call = lerp},
    {"where", .call = where},
    {"add_many", .call = add_many},
    {"compare", .call = compare},
    {"sum", .over = fv_sum},
    {"mean", .over = fv_mean},
    {"prod", .over = fv_prod},
    {"max", .over = fv_max},
    {"min", .over = fv_min},
    {"logsumexp", .over = fv_logsumexp},
    {"variance", .call = variance},
    {"std", .call = deviation},
    {"vector_norm", .call = vector_norm},
    {"cumsum", .call = cumsum},
    {"cumprod", .call = cumprod},
    {"argmax", .call = argmax},
    {"argmin", .call = argmin},
    {"sort", .call = sort},
    {"sort_order", .call = sort_order},
    {"topk", .call = topk},
    {0},
};
