/* Choosing, segments and noise at sizes that wake the threads: the same bits for any number of them, and
 * with AVX2 as with AVX-512. */
#include "tests/numbers.h"

enum { ROWS = 6000, D = 40, SAMPLES = 500, TIME = 60, IDS = 9000 };

/* What the calls share; ids name few rows often and many never. */
typedef struct {
    size_t at[SAMPLES + 1];
    int32_t ids[IDS], index[ROWS * D];
    unsigned char yes[ROWS * D];
    fv_real x[ROWS * D];
    fv_segments segments, bags;
    size_t bag_at[ROWS / 4 + 1];
} numbers;

static const numbers *make(void)
{
    static numbers n;
    const fv_rng rng = fv_rng_make(1, 1, "rows");
    for (size_t s = 0; s < SAMPLES; s++) { /* some empty, none longer than TIME */
        const size_t length = fv_rng_below(rng, s, TIME / 2) % 24;
        n.at[s + 1] = n.at[s] + length;
    }
    n.at[SAMPLES] = n.at[SAMPLES - 1] + TIME;
    cr_assert_leq(n.at[SAMPLES], ROWS);
    for (size_t i = 0; i < IDS; i++)
        n.ids[i] = (int32_t)(fv_rng_below(rng, i, 100) * fv_rng_below(rng, IDS + i, 40));
    for (size_t i = 0; i < ROWS * D; i++) {
        n.index[i] = (int32_t)fv_rng_below(rng, i, i % 3 ? D : 3);
        n.yes[i] = fv_rng_below(rng, i, 3) == 0;
        n.x[i] = (fv_real)fv_rng_normal(rng, i);
    }
    for (size_t b = 0; b <= ROWS / 4; b++)
        n.bag_at[b] = b * IDS / (ROWS / 4);
    n.segments = (fv_segments){SAMPLES, n.at};
    n.bags = (fv_segments){ROWS / 4, n.bag_at};
    return &n;
}

/* Call number which on a big input; NULL behind the last. */
static fv_var *call(fv_tape *t, const numbers *n, fv_param *table, int which)
{
    const fv_segments *segments = &n->segments, *joined;
    fv_var *x = fv_input(t, FV_SHAPE(ROWS, D), n->x), *square = fv_mul(t, x, x);
    fv_var *of_rows = fv_input(t, FV_SHAPE(fv_segments_rows(segments), D), n->x);
    fv_var *of_samples = fv_input(t, FV_SHAPE(SAMPLES, D), n->x);
    const fv_bools places = {FV_SHAPE(ROWS, D), n->yes}, row = {FV_SHAPE(D), n->yes},
                   column = {FV_SHAPE(ROWS, 1), n->yes};
    switch (which) {
    case 0:
        return fv_gather(t, square, n->ids, IDS);
    case 1:
        return fv_gather(t, fv_use(t, table), n->ids, IDS);
    case 2:
        return fv_gather_bags(t, fv_use(t, table), n->ids, &n->bags);
    case 3: /* both ways to a table, so that its gradient is dense */
        return fv_concat(t, 2,
                         (fv_var *[]){fv_gather(t, fv_use(t, table), n->ids, ROWS),
                                      fv_mul(t, fv_use(t, table), square)},
                         -1);
    case 4:
        return fv_scatter_add(t, x, n->ids, 4000);
    case 5:
        return fv_index_select(t, x, 0, n->ids, IDS);
    case 6:
        return fv_index_select(t, x, 1, n->index, 3 * D);
    case 7:
        return fv_take_along(t, x, 1, FV_SHAPE(ROWS, D), n->index);
    case 8:
        return fv_take_along(t, x, 0, FV_SHAPE(ROWS, D), n->index);
    case 9:
        return fv_masked_fill(t, x, places, 2);
    case 10:
        return fv_masked_fill(t, x, row, 2);
    case 11:
        return fv_masked_fill(t, x, column, 2);
    case 12:
        return fv_masked_select(t, x, n->yes, NULL, NULL);
    case 13:
        return fv_neighbours(t, of_rows, segments, 2);
    case 14:
        return fv_add_positions(t, of_rows, fv_use(t, table), segments);
    case 15:
        return fv_segment_mean(t, of_rows, segments);
    case 16:
        return fv_segment_sum(t, of_rows, segments);
    case 17:
        return fv_segment_max(t, of_rows, segments);
    case 18:
        return fv_segment_softmax(t, of_rows, segments);
    case 19:
        return fv_segment_last(t, of_rows, segments);
    case 20:
        return fv_segment_expand(t, of_samples, segments);
    case 21:
        return fv_segment_reverse(t, of_rows, segments);
    case 22:
        return fv_segment_concat(t, of_rows, segments, of_rows, segments, &joined);
    case 23:
        return fv_unpack(t, of_rows, segments, TIME);
    case 24:
        return fv_pack(t, fv_unpack(t, of_rows, segments, TIME), segments);
    case 25:
        return fv_dropout(t, x, 0.3);
    case 26:
        return fv_dropout_rows(t, x, 0.3);
    case 27:
        return fv_gaussian_noise(t, x, 0.5);
    case 28:
        return fv_gumbel_noise(t, x, 0.5);
    default:
        return NULL;
    }
}

/* Values and gradients of a call as one number. */
static uint64_t digest(const fv_tape_opts *opts, const numbers *n, fv_param *table, int which,
                       bool *done)
{
    uint64_t sum = 0;
    fv_tape *t = fv_tape_new(opts);
    fv_tape_begin(t, FV_TRAIN, 4, 0);
    fv_var *y = call(t, n, table, which);
    *done = y == NULL && fv_tape_ok(t);
    if (!*done)
        cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)), "%d: %s", which,
                  fv_tape_error(t)->text);
    for (const fv_var *v = t->last; v != NULL; v = v->previous) {
        sum = 31 * sum + fvi_hash(v->value.data, fvi_count(v) * sizeof(fv_real));
        if (v->grad != NULL)
            sum = 31 * sum + fvi_hash(v->grad, fvi_count(v) * sizeof(fv_real));
    }
    const int32_t *rows;
    const fv_real *grad;
    const size_t touched = fv_touched(t, table, &rows, &grad);
    for (size_t i = 0; i < touched; i++)
        sum = 31 * sum + (uint64_t)rows[i] + fvi_hash(grad + i * D, D * sizeof *grad);
    fv_tape_free(t);
    return sum;
}

static void compare(const fv_tape_opts *a, const fv_tape_opts *b)
{
    const numbers *n = make();
    fv_params *params = fv_params_new(1);
    fv_param *table =
        fv_param_new(fv_root(params), "table", FV_SHAPE(ROWS, D), (fv_init){FV_NORMAL, 1});
    bool done = false;
    int which = 0;
    for (; !done; which++)
        cr_expect_eq(digest(a, n, table, which, &done), digest(b, n, table, which, &done),
                     "call %d", which);
    cr_expect_eq(which, 30);
    fv_params_free(params);
}

Test(same_bits_rows, threads)
{
    const int threads[] = {2, 3, 8};
    for (int i = 0; i < 3; i++)
        compare(&(fv_tape_opts){.threads = 1}, &(fv_tape_opts){.threads = threads[i]});
}

Test(same_bits_rows, avx2_and_avx512)
{
    if (fvi_isa_best() != (fvi_isa)(FVI_ISA_COUNT - 1) || FVI_ISA_COUNT < 3)
        cr_skip_test("no avx512 in this build or processor");
    compare(&(fv_tape_opts){.isa = "avx2", .threads = 2}, &(fv_tape_opts){.isa = "avx512"});
}
