/* What the products refuse, word for word. */
#include "tests/refuse.h"

REFUSED(affine)
{
    int at = 0;
    WRONG("affine: an input is NULL", fv_affine(t, NULL, IN(3, 6), NULL))
    WRONG("affine: an input is NULL", fv_affine(t, IN(4, 6), NULL, IN(3)))
    WRONG("affine: input is [], expected [.., in]", fv_affine(t, SCALAR, IN(3, 1), NULL))
    WRONG("affine: [4, 6] with weight [3, 5]: inner sizes differ",
          fv_affine(t, IN(4, 6), IN(3, 5), NULL))
    WRONG("affine: [2, 4, 6] with weight [6, 3]: inner sizes differ",
          fv_affine(t, IN(2, 4, 6), IN(6, 3), NULL))
    WRONG("affine: [4, 6] with weight [6]: inner sizes differ", fv_affine(t, IN(4, 6), IN(6), NULL))
    WRONG("affine: [4, 6] with weight [1, 3, 6]: inner sizes differ",
          fv_affine(t, IN(4, 6), IN(1, 3, 6), NULL))
    WRONG("affine: weight [3, 6] with bias [4]: outputs differ",
          fv_affine(t, IN(4, 6), IN(3, 6), IN(4)))
    WRONG("affine: weight [3, 6] with bias [1, 3]: outputs differ",
          fv_affine(t, IN(4, 6), IN(3, 6), IN(1, 3)))
    WRONG("affine_relu: an input is NULL", fv_affine_relu(t, NULL, IN(3, 6), NULL))
    WRONG("affine_relu: [4, 6] with weight [3, 5]: inner sizes differ",
          fv_affine_relu(t, IN(4, 6), IN(3, 5), NULL))
    WRONG("affine_relu: weight [1, 6] with bias []: outputs differ",
          fv_affine_relu(t, IN(4, 6), IN(1, 6), SCALAR))
    WRONG("affine: [0, 9223372036854775808] with weight [2, 3]: inner sizes differ",
          fv_affine(t, IN(0, SIZE_MAX / 2 + 1), IN(2, 3), NULL))
    NO_MORE
}

REFUSED(matmul)
{
    int at = 0;
    const fv_matmul_opts a_flipped = {.transpose_a = true}, b_flipped = {.transpose_b = true},
                         both = {true, true};
    WRONG("matmul: an input is NULL", fv_matmul(t, NULL, IN(4, 6), NULL))
    WRONG("matmul: an input is NULL", fv_matmul(t, IN(4, 6), NULL, NULL))
    WRONG("matmul: a is [], expected a vector or a matrix", fv_matmul(t, SCALAR, IN(1, 6), NULL))
    WRONG("matmul: b is [], expected a vector or a matrix", fv_matmul(t, IN(6), SCALAR, NULL))
    WRONG("matmul: a is [6], expected two axes to transpose",
          fv_matmul(t, IN(6), IN(6, 4), &a_flipped))
    WRONG("matmul: b is [6], expected two axes to transpose",
          fv_matmul(t, IN(4, 6), IN(6), &b_flipped))
    WRONG("matmul: [4, 6] with [4, 6]: inner sizes differ", fv_matmul(t, IN(4, 6), IN(4, 6), NULL))
    WRONG("matmul: [4, 6] transposed with [6, 4]: inner sizes differ",
          fv_matmul(t, IN(4, 6), IN(6, 4), &a_flipped))
    WRONG("matmul: [4, 6] with [6, 4] transposed: inner sizes differ",
          fv_matmul(t, IN(4, 6), IN(6, 4), &b_flipped))
    WRONG("matmul: [4, 6] transposed with [6, 5] transposed: inner sizes differ",
          fv_matmul(t, IN(4, 6), IN(6, 5), &both))
    WRONG("matmul: [6] with [5]: inner sizes differ", fv_matmul(t, IN(6), IN(5), NULL))
    WRONG("matmul: [4, 6] with [4]: inner sizes differ", fv_matmul(t, IN(4, 6), IN(4), NULL))
    WRONG("matmul: [4] with [3, 5, 6]: inner sizes differ", fv_matmul(t, IN(4), IN(3, 5, 6), NULL))
    WRONG("matmul: [2, 4, 6] with [3, 6, 4]: the axes before do not broadcast",
          fv_matmul(t, IN(2, 4, 6), IN(3, 6, 4), NULL))
    WRONG("matmul: [2, 3, 4, 6] with [2, 6, 4]: the axes before do not broadcast",
          fv_matmul(t, IN(2, 3, 4, 6), IN(2, 6, 4), NULL))
    WRONG("matmul: [9223372036854775808, 2] holds more numbers than there can be",
          fv_matmul(t, IN(SIZE_MAX / 2 + 1, 0), IN(0, 2), NULL))
    NO_MORE
}

REFUSED(bilinear)
{
    int at = 0;
    WRONG("bilinear: an input is NULL", fv_bilinear(t, NULL, IN(4, 3), IN(2, 6, 3), NULL))
    WRONG("bilinear: an input is NULL", fv_bilinear(t, IN(4, 6), NULL, IN(2, 6, 3), NULL))
    WRONG("bilinear: an input is NULL", fv_bilinear(t, IN(4, 6), IN(4, 3), NULL, NULL))
    WRONG("bilinear: [] with []: expected [.., in_a] and [.., in_b]",
          fv_bilinear(t, SCALAR, SCALAR, IN(2, 1, 1), NULL))
    WRONG("bilinear: [4, 6] with [5, 3]: expected [.., in_a] and [.., in_b]",
          fv_bilinear(t, IN(4, 6), IN(5, 3), IN(2, 6, 3), NULL))
    WRONG("bilinear: [4, 6] with [3]: expected [.., in_a] and [.., in_b]",
          fv_bilinear(t, IN(4, 6), IN(3), IN(2, 6, 3), NULL))
    WRONG("bilinear: [4, 6] and [4, 3] with weight [2, 3, 6], expected [out, 6, 3]",
          fv_bilinear(t, IN(4, 6), IN(4, 3), IN(2, 3, 6), NULL))
    WRONG("bilinear: [4, 6] and [4, 3] with weight [2, 18], expected [out, 6, 3]",
          fv_bilinear(t, IN(4, 6), IN(4, 3), IN(2, 18), NULL))
    WRONG("bilinear: weight [2, 6, 3] with bias [3]: outputs differ",
          fv_bilinear(t, IN(4, 6), IN(4, 3), IN(2, 6, 3), IN(3)))
    WRONG("bilinear: weight [2, 6, 3] with bias [2, 1]: outputs differ",
          fv_bilinear(t, IN(4, 6), IN(4, 3), IN(2, 6, 3), IN(2, 1)))
    NO_MORE
}

REFUSED(outer)
{
    int at = 0;
    WRONG("outer: an input is NULL", fv_outer(t, NULL, IN(3)))
    WRONG("outer: an input is NULL", fv_outer(t, IN(3), NULL))
    WRONG("outer: [] with [3]: expected [.., m] and [.., n]", fv_outer(t, SCALAR, IN(3)))
    WRONG("outer: [3] with []: expected [.., m] and [.., n]", fv_outer(t, IN(3), SCALAR))
    WRONG("outer: [2, 3] with [4, 3]: the axes before do not broadcast",
          fv_outer(t, IN(2, 3), IN(4, 3)))
    WRONG("outer: [1, 1, 1, 1, 1, 3] with [3]: the result has more than 6 axes",
          fv_outer(t, IN(1, 1, 1, 1, 1, 3), IN(3)))
    WRONG("outer: [4, 2, 2] with [2, 4, 2]: the axes before do not broadcast",
          fv_outer(t, IN(4, 2, 2), IN(2, 4, 2)))
    WRONG("outer: [1, 1, 1, 1, 1, 3] with [2, 1, 1, 1, 1, 3]: the result has more than 6 axes",
          fv_outer(t, IN(1, 1, 1, 1, 1, 3), IN(2, 1, 1, 1, 1, 3)))
    NO_MORE
}

REFUSED(dot)
{
    int at = 0;
    WRONG("dot: an input is NULL", fv_dot(t, NULL, IN(3)))
    WRONG("dot: an input is NULL", fv_dot(t, IN(3), NULL))
    WRONG("dot: [] with []: expected [.., d] and [.., d]", fv_dot(t, SCALAR, SCALAR))
    WRONG("dot: [4] with []: expected [.., d] and [.., d]", fv_dot(t, IN(4), SCALAR))
    WRONG("dot: [4] with [3]: expected [.., d] and [.., d]", fv_dot(t, IN(4), IN(3)))
    WRONG("dot: [4] with [1]: expected [.., d] and [.., d]", fv_dot(t, IN(4), IN(1)))
    WRONG("dot: [2, 4] with [4, 2]: expected [.., d] and [.., d]", fv_dot(t, IN(2, 4), IN(4, 2)))
    WRONG("dot: [2, 4] with [3, 4]: the axes before do not broadcast",
          fv_dot(t, IN(2, 4), IN(3, 4)))
    NO_MORE
}

REFUSED(einsum)
{
    int at = 0;
    WRONG("einsum: an input is NULL", fv_einsum(t, "i,i->", NULL, IN(3)))
    WRONG("einsum: no notation", fv_einsum(t, NULL, IN(3), NULL))
    WRONG("einsum: \"i,i\": more operands than were given at 1", fv_einsum(t, "i,i", IN(3), NULL))
    WRONG("einsum: \"ij->i\": fewer operands than were given at 2",
          fv_einsum(t, "ij->i", IN(3, 3), IN(3)))
    WRONG("einsum: \"i,j,k\": more operands than were given at 3",
          fv_einsum(t, "i,j,k", IN(3), IN(3)))
    WRONG("einsum: \"ij\": 2 letters for [3]", fv_einsum(t, "ij", IN(3), NULL))
    WRONG("einsum: \"i\": 1 letter for [3, 3]", fv_einsum(t, "i", IN(3, 3), NULL))
    WRONG("einsum: \"ij...\": 2 letters and \"...\" for [3]", fv_einsum(t, "ij...", IN(3), NULL))
    WRONG("einsum: \"i1->i\": expected a letter, \"...\", \",\" or \"->\" at 1",
          fv_einsum(t, "i1->i", IN(3, 3), NULL))
    WRONG("einsum: \"i..->i\": a dot that is not one of three at 1",
          fv_einsum(t, "i..->i", IN(3), NULL))
    WRONG("einsum: \"...i...\": second \"...\" of an operand at 4",
          fv_einsum(t, "...i...", IN(3), NULL))
    WRONG("einsum: \"abcdefg\": more than 6 letters at 6", fv_einsum(t, "abcdefg", IN(3), NULL))
    WRONG("einsum: \"ij-ij\": expected \"->\" at 2", fv_einsum(t, "ij-ij", IN(3, 3), NULL))
    WRONG("einsum: \"ij->ij->i\": the result is not the end at 6",
          fv_einsum(t, "ij->ij->i", IN(3, 3), NULL))
    WRONG("einsum: \"ij->ik\": a letter of the result that no operand has at 5",
          fv_einsum(t, "ij->ik", IN(3, 3), NULL))
    WRONG("einsum: \"ij->ii\": a letter that the result already has at 5",
          fv_einsum(t, "ij->ii", IN(3, 3), NULL))
    WRONG("einsum: \"ii->i\": 'i' at 1 is 4 and was 3 in [3, 4]",
          fv_einsum(t, "ii->i", IN(3, 4), NULL))
    WRONG("einsum: \"ij,jk->ik\": 'j' at 3 is 4 in [3, 4] and 5 in [5, 2]",
          fv_einsum(t, "ij,jk->ik", IN(3, 4), IN(5, 2)))
    WRONG("einsum: \"...i,...i\": \"...\" of [2, 3] and [4, 3] do not broadcast",
          fv_einsum(t, "...i,...i", IN(2, 3), IN(4, 3)))
    WRONG("einsum: \"abcd,efgh\": the result has more than 6 axes at 9",
          fv_einsum(t, "abcd,efgh", IN(1, 1, 1, 1), IN(1, 1, 1, 1)))
    NO_MORE
}

Test(refuse_products, affine)
{
    refuse_each(affine);
}

Test(refuse_products, matmul)
{
    refuse_each(matmul);
}

Test(refuse_products, bilinear)
{
    refuse_each(bilinear);
}

Test(refuse_products, outer)
{
    refuse_each(outer);
}

Test(refuse_products, dot)
{
    refuse_each(dot);
}

Test(refuse_products, einsum)
{
    refuse_each(einsum);
}
