/* CTC against every path written out, its repeats and blanks, samples that are too short or empty. */
#include "tests/values.h"

enum { CLASSES = 3, LONGEST = 5 };

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* Whether a path gives the labels when repeats are joined and blanks are taken out. */
static bool collapses(size_t rows, const int32_t *path, int32_t blank, size_t count,
                      const int32_t *labels)
{
    size_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        if (path[r] == blank || (r > 0 && path[r] == path[r - 1]))
            continue;
        if (at == count || labels[at++] != path[r])
            return false;
    }
    return at == count;
}

/* -ln of the chance of all paths, and in share [rows, CLASSES] how much of it goes through each class. */
static double by_paths(size_t rows, const fv_real *x, int32_t blank, size_t count,
                       const int32_t *labels, double *share)
{
    size_t paths = 1;
    double chance = 0;
    for (size_t r = 0; r < rows; r++)
        paths *= CLASSES;
    for (size_t i = 0; i < rows * CLASSES; i++)
        share[i] = 0;
    for (size_t p = 0; p < paths; p++) {
        int32_t path[LONGEST];
        double log_chance = 0;
        for (size_t r = 0, rest = p; r < rows; r++, rest /= CLASSES) {
            path[r] = (int32_t)(rest % CLASSES);
            log_chance += (double)fv_re(x[r * CLASSES + (size_t)path[r]]);
        }
        if (!collapses(rows, path, blank, count, labels))
            continue;
        chance += exp(log_chance);
        for (size_t r = 0; r < rows; r++)
            share[r * CLASSES + (size_t)path[r]] += exp(log_chance);
    }
    for (size_t i = 0; chance > 0 && i < rows * CLASSES; i++)
        share[i] /= chance;
    return -log(chance);
}

/* All samples of up to five rows with all labels of up to three, both as labels allow. */
Test(op_ctc, every_path)
{
    fv_tape *t = begin();
    for (int32_t blank = 0; blank < CLASSES; blank++)
        for (size_t rows = 0; rows <= LONGEST; rows++)
            for (size_t which = 0; which < 15; which++) {
                /* 1, 2, 4 and 8 labellings of 0 to 3 labels, of the two classes that are no blank */
                const size_t count = which < 1 ? 0 : which < 3 ? 1 : which < 7 ? 2 : 3;
                const size_t first = ((size_t)1 << count) - 1, ends[] = {0, count},
                             all[] = {0, rows};
                const fv_segments segments = {1, all}, targets = {1, ends};
                const fv_ctc_opts opts = {.blank = blank};
                int32_t labels[3];
                double share[LONGEST * CLASSES];
                for (size_t i = 0; i < count; i++)
                    labels[i] = (blank + 1 + (int32_t)((which - first) >> i & 1)) % CLASSES;
                fv_tape_begin(t, FV_GRAD, 1, 1);
                fv_var *x = some(t, rows, FV_SHAPE(rows, CLASSES));
                fv_var *y = fv_ctc_sum(t, x, &segments, labels, &targets, &opts, NULL);
                const double loss = by_paths(rows, x->value.data, blank, count, labels, share);
                expect_value(t, y, &loss);
                if (!isfinite(loss))
                    continue;
                for (size_t i = 0; i < rows * CLASSES; i++)
                    share[i] = -share[i];
                expect_gradient(t, y, NULL, x, share);
            }
    fv_tape_free(t);
}

/* Two labels that repeat need three rows. */
Test(op_ctc, too_short)
{
    static const size_t rows[] = {0, 2, 2, 5}, ends[] = {0, 2, 3, 4};
    static const int32_t labels[] = {1, 1, 2, 1};
    static const fv_segments segments = {3, rows}, targets = {3, ends};
    const fv_ctc_opts zero = {.zero_infinity = true};
    double count;
    fv_tape *t = begin();
    fv_var *x = some(t, 1, FV_SHAPE(5, 3));
    expect_value(t, fv_ctc_sum(t, x, &segments, labels, &targets, NULL, &count),
                 (const double[]){INFINITY});
    cr_expect_eq(count, 3);
    fv_var *y = fv_ctc_sum(t, x, &segments, labels, &targets, &zero, &count);
    double share[9];
    const double loss = by_paths(3, x->value.data + 6, 0, 1, labels + 3, share);
    expect_value(t, y, &loss);
    cr_expect_eq(count, 3);
    cr_assert(fv_backward(t, y));
    expect_numbers("gradient", 6, x->grad, (const double[]){0, 0, 0, 0, 0, 0});
    for (size_t i = 0; i < 9; i++)
        share[i] = -share[i];
    expect_numbers("gradient", 9, x->grad + 6, share);
    fv_tape_free(t);
}

/* A NaN is not passed over, and stays in its sample. */
Test(op_ctc, nan)
{
    static const size_t rows[] = {0, 2, 4}, ends[] = {0, 1, 2};
    static const int32_t labels[] = {1, 1};
    static const fv_segments segments = {2, rows}, targets = {2, ends};
    const fv_real nan = (fv_real)NAN, x[] = {-1, -1, nan, -1, -1, -1, -1, -1},
                  y[] = {-1, -1, -1, nan, -1, -1, -1, -1};
    fv_tape *t = begin();
    for (int k = 0; k < 2; k++) {
        fv_var *in = fv_input(t, FV_SHAPE(4, 2), k ? y : x);
        fv_var *loss = fv_ctc_sum(t, in, &segments, labels, &targets, NULL, NULL);
        expect_value(t, loss, (const double[]){NAN});
        cr_assert(fv_backward(t, loss));
        for (size_t i = 4; i < 8; i++)
            cr_expect(isfinite((double)fv_re(in->grad[i])));
    }
    fv_tape_free(t);
}

Test(op_ctc, nothing)
{
    static const size_t zeros[] = {0, 0, 0};
    static const fv_segments none = {0, zeros}, empty = {2, zeros};
    const fv_real x[1] = {0};
    double count;
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(0, 3), x);
    fv_var *y = fv_ctc_sum(t, in, &none, NULL, &none, NULL, &count);
    expect_value(t, y, (const double[]){0});
    cr_expect_eq(count, 0);
    y = fv_ctc_sum(t, in, &empty, NULL, &empty, NULL, &count);
    expect_value(t, y, (const double[]){0});
    cr_expect_eq(count, 2);
    cr_expect(fv_backward(t, y));
    fv_tape_free(t);
}

/* In 4,000 rows that are certain of their labels nothing is lost; nor where each row has a chance of e^-50. */
Test(op_ctc, long_samples)
{
    enum { ROWS = 4000, LABELS = 500 };
    static fv_real x[ROWS * 4];
    static int32_t labels[LABELS];
    static const size_t rows[] = {0, ROWS}, ends[] = {0, LABELS};
    static const fv_segments segments = {1, rows}, targets = {1, ends};
    for (size_t i = 0; i < LABELS; i++)
        labels[i] = (int32_t)(1 + i % 3);
    for (int k = 0; k < 2; k++) {
        const double each = k ? -50 : 0;
        for (size_t i = 0; i < ROWS * 4; i++)
            x[i] = (fv_real)-1000;
        for (size_t r = 0; r < ROWS; r++)
            x[r * 4 + (r % 8 < 5 ? (size_t)labels[r / 8] : 0)] = (fv_real)each;
        fv_tape *t = begin();
        fv_var *in = fv_input(t, FV_SHAPE(ROWS, 4), x);
        fv_var *y = fv_ctc_sum(t, in, &segments, labels, &targets, NULL, NULL);
        const double expected = -each * ROWS;
        expect_value(t, y, &expected);
        cr_assert(fv_backward(t, y));
        for (size_t i = 0; i < ROWS * 4; i++)
            cr_expect(near(in->grad[i], fv_re(x[i]) == each ? -1 : 0), "at %zu: %g", i,
                      (double)fv_re(in->grad[i]));
        fv_tape_free(t);
    }
}

static fv_var *run(fv_tape *t, int which)
{
    enum { SAMPLES = 70, ROWS = 30, LABELS = 8 };
    static size_t rows[SAMPLES + 1], ends[SAMPLES + 1];
    static int32_t labels[SAMPLES * LABELS];
    static fv_segments segments = {SAMPLES, rows}, targets = {SAMPLES, ends};
    const fv_ctc_opts opts = {.zero_infinity = which > 0};
    for (size_t s = 0; s < SAMPLES; s++) {
        rows[s + 1] = rows[s] + (which ? s % ROWS : ROWS);
        ends[s + 1] = ends[s] + s % (LABELS + 1);
    }
    for (size_t i = 0; i < SAMPLES * LABELS; i++)
        labels[i] = (int32_t)(1 + i * i % 5);
    return fv_ctc_sum(t, some(t, 1, FV_SHAPE(rows[SAMPLES], 6)), &segments, labels, &targets, &opts,
                      NULL);
}

Test(op_ctc, threads)
{
    same_bits_at_any_threads(run, 2);
}
