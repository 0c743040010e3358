/* What operators read from their call and give back: attributes, lists, places, constants. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

fv_var *input(const call *c, int i)
{
    return i < c->inputs ? c->in[i].var : NULL;
}

double input_number(const call *c, int i, double otherwise)
{
    const fv_var *x = input(c, i);
    return x != NULL && fv_shape_count(x->value.shape) == 1 ? fv_re(x->value.data[0]) : otherwise;
}

bool has(const call *c, const char *name)
{
    return json_object_get(c->attributes, name) != NULL;
}

double number(const call *c, const char *name, double otherwise)
{
    const json_t *found = json_object_get(c->attributes, name);
    return json_is_number(found) ? json_number_value(found) : otherwise;
}

int whole(const call *c, const char *name, int otherwise)
{
    return (int)number(c, name, otherwise);
}

const char *text(const call *c, const char *name, const char *otherwise)
{
    const json_t *found = json_object_get(c->attributes, name);
    return json_is_string(found) ? json_string_value(found) : otherwise;
}

int list(const call *c, const char *name, int64_t numbers[MOST])
{
    const json_t *found = json_object_get(c->attributes, name);
    int count = 0;
    for (; count < MOST && count < (int)json_array_size(found); count++)
        numbers[count] = (int64_t)json_integer_value(json_array_get(found, (size_t)count));
    return count;
}

int input_list(const call *c, int i, int64_t numbers[MOST])
{
    const fv_var *x = input(c, i);
    int count = 0;
    for (; x != NULL && count < MOST && count < (int)fv_shape_count(x->value.shape); count++)
        numbers[count] = (int64_t)fv_re(x->value.data[count]);
    return count;
}

int list_or_input(const call *c, const char *name, int i, int64_t numbers[MOST])
{
    return has(c, name) ? list(c, name, numbers) : input_list(c, i, numbers);
}

int axis_of(const call *c, const fv_var *x, int64_t axis)
{
    if (x == NULL)
        return 0;
    const int rank = x->value.shape.rank;
    if (axis < -rank || axis >= (rank > 0 ? rank : 1)) {
        fv_refuse(c->t, c->op, "axis %lld of %s", (long long)axis, fv_describe(c->t, x));
        return 0;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

fv_bools truths(const call *c, int i)
{
    const fv_var *x = input(c, i);
    if (x == NULL)
        return (fv_bools){0};
    const size_t count = fv_shape_count(x->value.shape);
    unsigned char *yes = fv_tape_alloc(c->t, count + 1, 1);
    for (size_t k = 0; yes != NULL && k < count; k++)
        yes[k] = fv_re(x->value.data[k]) != 0;
    return (fv_bools){x->value.shape, yes};
}

int32_t *places(const call *c, int i, size_t size)
{
    const fv_var *x = input(c, i);
    const size_t count = x == NULL ? 0 : fv_shape_count(x->value.shape);
    int32_t *at = fv_tape_alloc(c->t, count + 1, sizeof *at);
    for (size_t k = 0; at != NULL && k < count; k++) {
        const double place = fv_re(x->value.data[k]);
        at[k] = (int32_t)(place < 0 ? place + (double)size : place);
    }
    return at;
}

bool is_float(const char *type)
{
    return strncmp(type, "float", 5) == 0 || strcmp(type, "bfloat16") == 0;
}

bool wants(const call *c, int i)
{
    return i < c->outputs && *c->out[i].name != 0;
}

void give(call *c, int i, fv_var *y)
{
    if (wants(c, i))
        c->out[i].var = y;
}

fv_var *lacks(call *c, const char *what)
{
    if (c->lacks == NULL)
        c->lacks = what;
    return NULL;
}

fv_var *constant(const call *c, fv_shape shape, double value_of_all)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(c->t, count + 1, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++)
        data[i] = (fv_real)value_of_all;
    return fv_constant(c->t, shape, data);
}

fv_var *from_numbers(const call *c, fv_shape shape, const double *numbers)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(c->t, count + 1, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++)
        data[i] = (fv_real)numbers[i];
    return fv_constant(c->t, shape, data);
}

fv_var *from_truths(const call *c, fv_bools yes)
{
    const size_t count = fv_shape_count(yes.shape);
    fv_real *data = fv_tape_alloc(c->t, count + 1, sizeof *data);
    for (size_t i = 0; data != NULL && yes.data != NULL && i < count; i++)
        data[i] = (fv_real)yes.data[i];
    return yes.data == NULL ? NULL : fv_constant(c->t, yes.shape, data);
}

fv_var *from_places(const call *c, fv_shape shape, const int32_t *at)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(c->t, count + 1, sizeof *data);
    for (size_t i = 0; data != NULL && at != NULL && i < count; i++)
        data[i] = (fv_real)at[i];
    return at == NULL ? NULL : fv_constant(c->t, shape, data);
}
