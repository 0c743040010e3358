/* Thousands of cases that PyTorch computed in double: every op's value and all its gradients.
 *
 * Double and complex builds: |got - want| <= 1e-10 |want| + 1e-13 max(1, largest |want| of the array).
 * The second term is for numbers that cancel: inputs are of the size of 1 and a result is made of at most a few
 * hundred terms no larger than the largest, each rounded to 1.1e-16 of itself. The float build compares
 * values only, to 1e-5 |want| + 2e-6 max(1, largest). NaN equals NaN, infinities are equal with their sign. */
#include "tests/torch_ops.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/files/npz.h"

static const char *const families[] = {"elementwise", "binary",   "reductions",  "shapes",
                                       "choosing",    "segments", "softmax",     "norms",
                                       "losses",      "products", "convolution", "attention"};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- options ------------------------------------------------------------------------------------------- */

static const json_t *option(const fixture *f, const char *name)
{
    return json_object_get(f->json, name);
}

bool option_is(const fixture *f, const char *name)
{
    return option(f, name) != NULL;
}

double option_number(const fixture *f, const char *name)
{
    const json_t *o = option(f, name);
    return json_is_string(o) ? strtod(json_string_value(o), NULL) : json_number_value(o);
}

int option_int(const fixture *f, const char *name)
{
    return (int)json_integer_value(option(f, name));
}

size_t option_count(const fixture *f, const char *name)
{
    return json_array_size(option(f, name));
}

int32_t *option_ids(const fixture *f, const char *name)
{
    const size_t count = option_count(f, name);
    int32_t *ids = option_is(f, name) ? fv_tape_alloc(f->t, count + 1, sizeof *ids) : NULL;
    for (size_t i = 0; ids != NULL && i < count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(option(f, name), i));
    return ids;
}

size_t *option_sizes(const fixture *f, const char *name)
{
    const size_t count = option_count(f, name);
    size_t *sizes = option_is(f, name) ? fv_tape_alloc(f->t, count + 3, sizeof *sizes) : NULL;
    for (size_t i = 0; sizes != NULL && i < count; i++)
        sizes[i] = (size_t)json_integer_value(json_array_get(option(f, name), i));
    return sizes;
}

fv_real *option_reals(const fixture *f, const char *name)
{
    const size_t count = option_count(f, name);
    fv_real *reals = option_is(f, name) ? fv_tape_alloc(f->t, count + 1, sizeof *reals) : NULL;
    for (size_t i = 0; reals != NULL && i < count; i++)
        reals[i] = (fv_real)json_number_value(json_array_get(option(f, name), i));
    return reals;
}

static fv_shape shape_from(const json_t *list)
{
    fv_shape shape = {.rank = (int)json_array_size(list)};
    for (int i = 0; i < shape.rank; i++)
        shape.size[i] = (size_t)json_integer_value(json_array_get(list, (size_t)i));
    return shape;
}

fv_shape option_shape(const fixture *f, const char *name)
{
    return shape_from(option(f, name));
}

fv_segments option_segments(const fixture *f, const char *name)
{
    return (fv_segments){option_count(f, name) - 1, option_sizes(f, name)};
}

fv_bools option_truths(const fixture *f)
{
    const int32_t *yes = option_ids(f, "yes");
    const size_t count = option_count(f, "yes");
    unsigned char *data = fv_tape_alloc(f->t, count + 1, 1);
    for (size_t i = 0; i < count; i++)
        data[i] = (unsigned char)yes[i];
    return (fv_bools){option_shape(f, "yes_shape"), data};
}

fv_var *as_value(const fixture *f, fv_shape shape, const int32_t *numbers)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(f->t, count + 1, sizeof *data);
    for (size_t i = 0; numbers != NULL && i < count; i++)
        data[i] = (fv_real)numbers[i];
    return numbers == NULL ? NULL : fv_constant(f->t, shape, data);
}

/* ---- comparing ------------------------------------------------------------------------------------------- */

static bool close_to(double got, double want, double largest)
{
#if defined(FV_F64) || defined(FV_COMPLEX)
    const double relative = 1e-10, absolute = 1e-13;
#else
    const double relative = 1e-5, absolute = 2e-6;
#endif
    if (isnan(want) || isinf(want) || !isfinite(got))
        return (isnan(want) && isnan(got)) || got == want;
    return fabs(got - want) <= relative * fabs(want) + absolute * fmax(1, largest);
}

static void compare(const fixture *f, int number, const char *what, const fv_real *got,
                    const double *want, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(want[i]))
            largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++) {
        const double x = got == NULL ? 0 : fv_re(got[i]); /* no gradient is a gradient of zero */
        if (!close_to(x, want[i], largest)) {
            char *text = json_dumps(f->json, JSON_COMPACT);
            cr_expect(false, "case %d, %s[%zu]: got %.17g, want %.17g: %s", number, what, i, x,
                      want[i], text);
            free(text);
            return;
        }
    }
}

/* ---- running --------------------------------------------------------------------------------------------- */

static fv_var *run(fixture *f)
{
    static const torch_call *const tables[] = {torch_number_calls, torch_shape_calls,
                                               torch_row_calls, torch_window_calls,
                                               torch_attention_calls};
    const char *name = json_string_value(option(f, "op"));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const torch_call *c = tables[i]; c->name != NULL; c++) {
            if (strcmp(c->name, name) != 0)
                continue;
            if (c->unary != NULL)
                return c->unary(f->t, f->x[0]);
            if (c->binary != NULL)
                return c->binary(f->t, f->x[0], f->x[1]);
            if (c->along != NULL)
                return c->along(f->t, f->x[0], option_int(f, "axis"));
            if (c->segments != NULL) {
                const fv_segments s = option_segments(f, "segments");
                /* Read again by fv_backward: it must outlive this call. */
                fv_segments *kept = fv_tape_alloc(f->t, 1, sizeof *kept);
                *kept = s;
                return c->segments(f->t, f->x[0], kept);
            }
            if (c->over != NULL) {
                fv_axes axes = {.count = (int)option_count(f, "axes"),
                                .keep = option_int(f, "keep")};
                const int32_t *axis = option_ids(f, "axes");
                for (int k = 0; k < axes.count; k++)
                    axes.axis[k] = axis[k];
                return c->over(f->t, f->x[0], axis != NULL ? &axes : NULL);
            }
            return c->call(f);
        }
    cr_expect(false, "%s: not in a table", name);
    return NULL;
}

/* Whether the gradient of input i is part of the fixture. */
static bool has_gradient(const fixture *f, int i)
{
    const json_t *list = option(f, "grad");
    return list == NULL || json_integer_value(json_array_get(list, (size_t)i)) != 0;
}

#if defined(FV_F64) || defined(FV_COMPLEX)
/* Fills the gradients of sum(y * c). */
static void project(fixture *f, fv_var *y)
{
    const size_t count = fv_shape_count(y->value.shape);
    fv_real *c = fv_tape_alloc(f->t, count + 1, sizeof *c);
    for (size_t i = 0; i < count; i++)
        c[i] = (fv_real)(((int)((37 * i + 11) % 61) - 30) / 32.0);
    fv_var *weights = fv_constant(f->t, y->value.shape, c);
    cr_expect(fv_backward(f->t, fv_sum(f->t, fv_mul(f->t, y, weights), NULL)), "%s",
              fv_tape_error(f->t)->text);
}
#endif

/* One case; moves both cursors past its numbers. */
static void run_case(fv_tape *t, int number, const json_t *json, const double **in,
                     const double **out)
{
    fixture f = {.t = t, .json = json, .count = NAN};
    const json_t *shapes = option(&f, "in");
    char shape_text[160];
    fv_tape_begin(t, FV_GRAD, 1, 1);
    f.inputs = (int)json_array_size(shapes);
    for (int i = 0; i < f.inputs; i++) {
        const fv_shape shape = shape_from(json_array_get(shapes, (size_t)i));
        const size_t count = fv_shape_count(shape);
        fv_real *data = fv_tape_alloc(t, count + 1, sizeof *data);
        for (size_t k = 0; k < count; k++)
            data[k] = (fv_real)(*in)[k];
        *in += count;
        f.x[i] = fv_input(t, shape, data);
    }
    const fv_shape shape = option_shape(&f, "out");
    const double *want = *out, *gradients = want + fv_shape_count(shape);
    *out = gradients;
    for (int i = 0; i < f.inputs; i++)
        *out += has_gradient(&f, i) ? fv_shape_count(f.x[i]->value.shape) : 0;

    fv_var *y = run(&f);
    if (y == NULL || !fv_shape_equal(y->value.shape, shape)) {
        char *text = json_dumps(json, JSON_COMPACT);
        cr_expect(false, "case %d: %s: %s", number,
                  y == NULL ? fv_tape_error(t)->text : fv_shape_text(y->value.shape, shape_text),
                  text);
        free(text);
        return;
    }
    compare(&f, number, "y", y->value.data, want, fv_shape_count(shape));
    if (option_is(&f, "count"))
        cr_expect_float_eq(f.count, option_number(&f, "count"), 1e-6, "case %d: count %g", number,
                           f.count);
#if defined(FV_F64) || defined(FV_COMPLEX)
    if (*out == gradients)
        return;
    project(&f, y);
    for (int i = 0; i < f.inputs; i++)
        if (has_gradient(&f, i)) {
            const size_t count = fv_shape_count(f.x[i]->value.shape);
            char what[20];
            snprintf(what, sizeof what, "dx%d", i);
            compare(&f, number, what, f.x[i]->grad, gradients, count);
            gradients += count;
        }
#endif
}

/* ---- files ----------------------------------------------------------------------------------------------- */

/* A member of a fixture file, unpacked; free it. */
static unsigned char *unpack(const fvi_zip *zip, const char *name, size_t *length)
{
    fv_error error = {0};
    for (size_t i = 0; i < zip->count; i++)
        if (strcmp(zip->members[i].name, name) == 0) {
            unsigned char *bytes = malloc(zip->members[i].length + 1);
            cr_assert(fvi_zip_unpack(zip, &zip->members[i], bytes, &error), "%s", error.text);
            *length = zip->members[i].length;
            return bytes;
        }
    cr_assert(false, "%s: no %s", zip->path, name);
    return NULL;
}

/* All numbers of an array as doubles; free them. */
static double *numbers_of(const fvi_zip *zip, const char *name, size_t *count)
{
    size_t length;
    fvi_npy npy;
    fv_error error = {0};
    unsigned char *bytes = unpack(zip, name, &length);
    cr_assert(fvi_npy_parse(&npy, zip->path, name, bytes, length, &error), "%s", error.text);
    cr_assert(npy.kind == 'f' && npy.width == 8);
    double *numbers = malloc(npy.count * sizeof *numbers + 1);
    for (size_t i = 0; i < npy.count; i++) {
        const uint64_t bits = fvi_get(npy.data + 8 * i, 8);
        memcpy(&numbers[i], &bits, sizeof bits);
    }
    *count = npy.count;
    free(bytes);
    return numbers;
}

/* Runs a family's cases, or only counts them without a tape. */
static size_t run_family(const char *name, fv_tape *t)
{
    char path[200];
    fvi_zip zip;
    fv_error error = {0};
    size_t length, inputs, outputs;
    snprintf(path, sizeof path, "tests/fixtures/%s.npz", name);
    char *file = fvi_read_regular(path, &length, &error, FV_DATA);
    cr_assert_not_null(file, "%s", error.text);
    cr_assert(fvi_zip_parse(&zip, path, file, length, &error), "%s", error.text);
    char *text = (char *)unpack(&zip, "cases.json", &length);
    json_t *cases = json_loadb(text, length, 0, NULL);
    cr_assert(json_is_array(cases), "%s: cases.json is no list", path);
    const size_t count = json_array_size(cases);
    if (t != NULL) {
        double *in = numbers_of(&zip, "inputs.npy", &inputs),
               *out = numbers_of(&zip, "outputs.npy", &outputs);
        const double *next_in = in, *next_out = out;
        for (size_t i = 0; i < count; i++)
            run_case(t, (int)i, json_array_get(cases, i), &next_in, &next_out);
        cr_expect(next_in == in + inputs && next_out == out + outputs, "%s: numbers left over",
                  path);
        free(in);
        free(out);
    }
    json_decref(cases);
    free(text);
    fvi_zip_free(&zip);
    fvi_free(file);
    return count;
}

ParameterizedTestParameters(torch_ops, values_and_gradients)
{
    static int ids[FAMILIES];
    for (int i = 0; i < FAMILIES; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, FAMILIES);
}

ParameterizedTest(int *id, torch_ops, values_and_gradients)
{
    fv_tape *t = fv_tape_new(NULL);
    run_family(families[*id], t);
    fv_tape_free(t);
}

Test(torch_ops, there_are_enough)
{
    size_t total = 0;
    char text[600] = "";
    for (int i = 0; i < FAMILIES; i++) {
        const size_t count = run_family(families[i], NULL), used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %zu", i > 0 ? ", " : "", families[i],
                 count);
        total += count;
    }
    fprintf(stderr, "PyTorch fixtures: %s: %zu\n", text, total);
    cr_assert_geq(total, 2000);
}
