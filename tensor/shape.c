/* Shapes and printing. */
#include "tensor/internal.h"

#include <math.h>

size_t fv_shape_count(fv_shape shape)
{
    size_t count = 1;
    if (shape.rank < 0 || shape.rank > FV_MAX_RANK)
        return 0;
    for (int i = 0; i < shape.rank; i++)
        if (!fvi_mul(count, shape.size[i], &count))
            return 0;
    return count;
}

bool fv_shape_equal(fv_shape a, fv_shape b)
{
    if (a.rank != b.rank)
        return false;
    for (int i = 0; i < a.rank; i++)
        if (a.size[i] != b.size[i])
            return false;
    return true;
}

const char *fv_shape_text(fv_shape shape, char text[160])
{
    int at = snprintf(text, 160, "[");
    for (int i = 0; i < shape.rank && i < FV_MAX_RANK; i++)
        at += snprintf(text + at, (size_t)(160 - at), "%s%zu", i ? ", " : "", shape.size[i]);
    snprintf(text + at, (size_t)(160 - at), "]");
    return text;
}

static void print_number(FILE *out, fv_real x)
{
    char text[FVI_NUMBER];
    fputs(fvi_number(text, (double)fv_re(x), 6), out);
    if (fv_im(x) != 0)
        fprintf(out, "%s%si", fv_im(x) > 0 ? "+" : "", fvi_number(text, (double)fv_im(x), 6));
}

enum { SHOWN = 3 }; /* of a long axis, at each end */

/* An axis is printed whole up to 2 * SHOWN + 2 entries. Recursion goes FV_MAX_RANK deep at most. */
static void print_axis(FILE *out, fv_tensor x, int axis, size_t from, size_t count)
{
    if (axis == x.shape.rank) {
        print_number(out, x.data[from]);
        return;
    }
    size_t size = x.shape.size[axis], step = size ? count / size : 0;
    fputc('[', out);
    for (size_t i = 0; i < size; i++) {
        if (i > 0) {
            fputc(',', out);
            if (axis + 1 == x.shape.rank)
                fputc(' ', out);
            else
                fprintf(out, "\n%*s", axis + 1, "");
        }
        if (size > 2 * SHOWN + 2 && i == SHOWN) {
            fputs("...", out);
            i = size - SHOWN - 1;
            continue;
        }
        print_axis(out, x, axis + 1, from + i * step, step);
    }
    fputc(']', out);
}

void fv_tensor_print(FILE *out, fv_tensor x)
{
    if (x.data == NULL || x.shape.rank < 0 || x.shape.rank > FV_MAX_RANK) {
        fputs("(none)\n", out);
        return;
    }
    print_axis(out, x, 0, 0, fv_shape_count(x.shape));
    fputc('\n', out);
}
