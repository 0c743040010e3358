/* Reductions and moves large enough for threads: the same bits at any number of them. */
#include "tests/values.h"

static fv_var *reduction(fv_tape *t, int which)
{
    fv_var *flat = some(t, 1, FV_SHAPE(300000)), *m = fv_reshape(t, flat, FV_SHAPE(500, 600)),
           *deep = fv_reshape(t, flat, FV_SHAPE(30, 100, 100));
    switch (which) {
    case 0: /* one result: threads share its blocks */
        return fv_sum(t, flat, NULL);
    case 1:
        return fv_mean(t, m, FV_AXES(0));
    case 2:
        return fv_mean(t, m, FV_AXES(1));
    case 3:
        return fv_sum(t, deep, FV_AXES(0, 2));
    case 4:
        return fv_variance(t, fv_reshape(t, flat, FV_SHAPE(100000, 3)), FV_AXES(0), 1);
    case 5:
        return fv_std(t, fv_reshape(t, flat, FV_SHAPE(100000, 3)), FV_AXES(1), 0);
    case 6:
        return fv_logsumexp(t, flat, NULL);
    case 7:
        return fv_vector_norm(t, m, FV_AXES(0), 3);
    case 8:
        return fv_max(t, deep, FV_AXES(1));
    default:
        return fv_prod(t, fv_scale(t, deep, 0.9), FV_AXES(2));
    }
}

static fv_var *scanned(fv_tape *t, int which)
{
    fv_var *m = some(t, 2, FV_SHAPE(500, 600));
    switch (which) {
    case 0:
        return fv_cumsum(t, m, 0, NULL);
    case 1:
        return fv_cumsum(t, m, 1, &(fv_scan_opts){.reverse = true});
    case 2:
        return fv_cumprod(t, m, 1, NULL);
    case 3:
        return fv_sort(t, m, 0, NULL);
    default:
        return fv_topk(t, m, 1, 40, NULL);
    }
}

static fv_var *moved(fv_tape *t, int which)
{
    fv_var *m = some(t, 3, FV_SHAPE(500, 600));
    switch (which) {
    case 0:
        return fv_transpose(t, m, 0, 1);
    case 1:
        return fv_permute(t, fv_reshape(t, m, FV_SHAPE(50, 10, 8, 75)), (int[]){0, 2, 1, 3});
    case 2:
        return fv_expand(t, fv_slice(t, m, 0, (fv_range){3, 4, 1}), FV_SHAPE(700, 600));
    case 3:
        return fv_tile(t, fv_slice(t, m, 1, (fv_range){0, 100, 3}), (size_t[]){3, 5});
    case 4:
        return fv_pad(t, m, 1, 200, 300, &(fv_pad_opts){.mode = FV_PAD_EDGE});
    case 5:
        return fv_concat(t, 2, (fv_var *[]){m, m}, 0);
    case 6:
        return fv_triu(t, m, 7);
    default:
        return fv_flip(t, fv_roll(t, m, 0, 123), 1);
    }
}

Test(op_large, reductions)
{
    same_bits_at_any_threads(reduction, 10);
}

Test(op_large, scans)
{
    same_bits_at_any_threads(scanned, 5);
}

Test(op_large, moves)
{
    same_bits_at_any_threads(moved, 8);
}
