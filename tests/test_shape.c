/* Shapes, and numbers and tensors as texts. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"

Test(shape, count)
{
    cr_expect_eq(fv_shape_count(FV_SCALAR), 1);
    cr_expect_eq(fv_shape_count(FV_SHAPE(2, 3, 4)), 24);
    cr_expect_eq(fv_shape_count(FV_SHAPE(2, 0, 4)), 0);
    cr_expect_eq(fv_shape_count(FV_SHAPE(SIZE_MAX, 2)), 0, "more than there can be");
    cr_expect_eq(fv_shape_count((fv_shape){.rank = 7}), 0);
    cr_expect_eq(fv_shape_count((fv_shape){.rank = -1}), 0);
}

Test(shape, text)
{
    char text[160];
    const size_t most = SIZE_MAX;
    cr_expect_str_eq(fv_shape_text(FV_SHAPE(4, 6), text), "[4, 6]");
    cr_expect_str_eq(fv_shape_text(FV_SCALAR, text), "[]");
    fv_shape_text(FV_SHAPE(most, most, most, most, most, most), text);
    cr_expect_eq(text[strlen(text) - 1], ']', "cut: %s", text);
}

Test(number, has_a_point_in_every_locale)
{
    char text[FVI_NUMBER], comma[] = "-3,25e-07",
                           arabic[] = "3\xd9\xab"
                                      "25",
                           plain[] = "inf";
    cr_expect_str_eq(fvi_number(text, -0.5, 6), "-0.5");
    cr_expect_str_eq(fvi_number(text, 1e300, 6), "1e+300");
    cr_expect_str_eq(fvi_number(text, -0x1.fffffffffffffp-1022, 17), "-4.4501477170144023e-308");
    fvi_use_point(comma);
    fvi_use_point(arabic);
    fvi_use_point(plain);
    cr_expect_str_eq(comma, "-3.25e-07");
    cr_expect_str_eq(arabic, "3.25");
    cr_expect_str_eq(plain, "inf");
}

static void prints(fv_tensor x, const char *expected)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fv_tensor_print(out, x);
    fclose(out);
    cr_expect_str_eq(text, expected);
    free(text);
}

Test(shape, print)
{
    fv_real data[24];
    for (int i = 0; i < 24; i++)
        data[i] = (fv_real)(i * 0.5 - 1);
    prints((fv_tensor){FV_SCALAR, data}, "-1\n");
    prints((fv_tensor){FV_SHAPE(2, 3), data}, "[[-1, -0.5, 0],\n [0.5, 1, 1.5]]\n");
    prints((fv_tensor){FV_SHAPE(2, 1, 2), data}, "[[[-1, -0.5]],\n [[0, 0.5]]]\n");
    prints((fv_tensor){FV_SHAPE(9), data}, "[-1, -0.5, 0, ..., 2, 2.5, 3]\n");
    prints((fv_tensor){FV_SHAPE(0, 3), data}, "[]\n");
    prints((fv_tensor){FV_SHAPE(2), NULL}, "(none)\n");
    prints((fv_tensor){{.rank = 9}, data}, "(none)\n");
#if defined(FV_COMPLEX)
    data[0] = 1.5 - 2 * I;
    data[1] = 1e-30 * I;
    prints((fv_tensor){FV_SHAPE(2), data}, "[1.5-2i, 0+1e-30i]\n");
#endif
}
