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
    fprintf(out, "%.6g", (double)fv_re(x));
    if (fv_im(x) != 0)
        fprintf(out, "%+.6gi", (double)fv_im(x));
}

enum { SHOWN = 3 }; /* of a long axis, at each end */

/* An axis is printed whole up to 2 * SHOWN + 2 entries; depth counts recursions, at most FV_MAX_RANK. */
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
    print_axis(out, x, 0, 0, fv_shape_count(x.shape));
    fputc('\n', out);
}
