/* The likeliest cause of a wrong gradient, from its elements beside the right ones. Each pattern must explain
 * all elements, far better than chance; the first that does is the answer. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>

/* How well a pattern must fit, relative to the mistake that it explains. */
static const double CLOSE = 1e-3;

static double largest(size_t n, const double *x)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i]) <= most))
            most = fabs(x[i]);
    return most;
}

/* ---- one factor ---------------------------------------------------------------------------------------- */

/* Names a factor that sizes explain, as a mean taken for a sum. */
static void name_factor(const fvi_compared *p, double factor, char text[200])
{
    char number[FVI_NUMBER];
    const size_t rows = p->columns ? p->count / p->columns : 0;
    const size_t sizes[] = {rows, p->columns, p->count, p->outputs};
    static const char *const words[] = {"rows", "columns", "elements", "outputs"};
    const bool hair = fabs(factor - 1) < 1e-5;
    int length = snprintf(text, 200, "a factor of %s%s too much", hair ? "1 + " : "",
                          fvi_number(number, hair ? factor - 1 : factor, hair ? 3 : 6));
    for (int i = 0; i < 4 && length < 100; i++) {
        const double size = (double)sizes[i];
        const char *what = NULL;
        if (sizes[i] < 2)
            continue;
        if (fabs(factor / size - 1) < 1e-6)
            what = "a mean taken as a sum over";
        else if (fabs(factor * size - 1) < 1e-6)
            what = "a sum taken as a mean over";
        else if (fabs(factor / sqrt(size) - 1) < 1e-6 || fabs(factor * sqrt(size) - 1) < 1e-6)
            what = "the square root of";
        if (what != NULL) {
            snprintf(text + length, 200 - (size_t)length, " (%s %zu %s?)", what, sizes[i],
                     words[i]);
            return;
        }
    }
}

static bool is_factor(const fvi_compared *p, double tolerance, double *factor)
{
    double ge = 0, ee = 0, worst = 0;
    for (size_t i = 0; i < p->count; i++) {
        ge += p->given[i] * p->exact[i];
        ee += p->exact[i] * p->exact[i];
    }
    if (ee == 0)
        return false;
    *factor = ge / ee;
    for (size_t i = 0; i < p->count; i++) {
        const double off = fabs(p->given[i] - *factor * p->exact[i]);
        worst = off > worst ? off : worst;
    }
    const double mistake = fabs(*factor - 1) * largest(p->count, p->exact);
    return worst <= CLOSE * mistake + tolerance;
}

/* ---- other places --------------------------------------------------------------------------------------- */

static bool near(double a, double b, double slack)
{
    return fabs(a - b) <= slack;
}

static bool is_transposed(const fvi_compared *p, double slack)
{
    const size_t d = p->columns, rows = d ? p->count / d : 0;
    if (rows < 2 || d < 2)
        return false;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < d; j++)
            if (!near(p->given[j * rows + i], p->exact[i * d + j], slack))
                return false;
    return true;
}

/* Whether run a of given, n numbers, is run b of exact. */
static bool same_run(const fvi_compared *p, size_t a, size_t b, size_t n, double slack)
{
    for (size_t j = 0; j < n; j++)
        if (!near(p->given[a * n + j], p->exact[b * n + j], slack))
            return false;
    return true;
}

/* Whether runs of n numbers (rows, or single numbers) stand elsewhere; shift gets by how far, or 0. */
static bool is_reordered(const fvi_compared *p, size_t n, double slack, size_t *shift)
{
    enum { MOST = 64 };
    const size_t runs = n ? p->count / n : 0;
    bool taken[MOST] = {false};
    *shift = 0;
    if (runs < 2 || runs > MOST)
        return false;
    for (size_t by = 1; by < runs; by++) {
        size_t r = 0;
        while (r < runs && same_run(p, (r + by) % runs, r, n, slack))
            r++;
        if (r == runs) {
            *shift = by;
            return true;
        }
    }
    for (size_t a = 0; a < runs; a++) {
        size_t b = 0;
        while (b < runs && (taken[b] || !same_run(p, a, b, n, slack)))
            b++;
        if (b == runs)
            return false;
        taken[b] = true;
    }
    return true;
}

/* ---- a term ------------------------------------------------------------------------------------------------- */

/* What a missing term may be made of, at an element. */
typedef enum { ONE, X, DY, X_DY, Y, Y_DY, TERMS } term;

static double term_at(const fvi_compared *p, term what, size_t i)
{
    switch (what) {
    case X:
        return p->x[i];
    case DY:
        return p->dy[i];
    case X_DY:
        return p->x[i] * p->dy[i];
    case Y:
        return p->y[i];
    case Y_DY:
        return p->y[i] * p->dy[i];
    default:
        return 1;
    }
}

/* Whether exact - given is one number times the term over a run of elements. */
static bool is_multiple(const fvi_compared *p, term what, size_t first, size_t n, double slack,
                        double *factor)
{
    double tt = 0, td = 0;
    for (size_t i = first; i < first + n; i++) {
        const double at = term_at(p, what, i);
        tt += at * at;
        td += at * (p->exact[i] - p->given[i]);
    }
    *factor = tt > 0 ? td / tt : 0;
    for (size_t i = first; i < first + n; i++)
        if (!near(*factor * term_at(p, what, i), p->exact[i] - p->given[i], slack))
            return false;
    return true;
}

static bool is_term(const fvi_compared *p, double tolerance, char text[200])
{
    static const char *const names[TERMS] = {"1", "x", "dy", "x dy", "y", "y dy"};
    static const term by_row[] = {ONE, Y, X};
    const size_t d = p->columns, rows = d ? p->count / d : 0;
    double mistake = 0, factor;
    char number[FVI_NUMBER];
    for (size_t i = 0; i < p->count; i++) {
        const double off = fabs(p->exact[i] - p->given[i]);
        mistake = off > mistake ? off : mistake;
    }
    const double slack = CLOSE * mistake + tolerance;
    const bool with_output = p->outputs == p->count;
    if (p->count < 3)
        return false;
    for (int what = 0; what < TERMS; what++)
        if ((what < DY || with_output) && is_multiple(p, (term)what, 0, p->count, slack, &factor)) {
            snprintf(text, 200, "a term is missing: %s times %s", fvi_number(number, factor, 6),
                     names[what]);
            return true;
        }
    for (size_t i = 0; d > 1 && rows > 1 && i < sizeof by_row / sizeof *by_row; i++) {
        size_t r = 0;
        if (by_row[i] == Y && !with_output)
            continue;
        while (r < rows && is_multiple(p, by_row[i], r * d, d, slack, &factor))
            r++;
        if (r == rows) {
            snprintf(text, 200,
                     "a term is missing: %s times a number of each row (a sum over the row?)",
                     names[by_row[i]]);
            return true;
        }
    }
    for (size_t r = 1; d > 0 && r < rows; r++) /* the same in all rows */
        for (size_t j = 0; j < d; j++)
            if (!near(p->exact[r * d + j] - p->given[r * d + j], p->exact[j] - p->given[j], slack))
                return false;
    if (rows < 2)
        return false;
    snprintf(text, 200, "a term is missing that is the same in all rows");
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

fv_check_cause fvi_check_cause(const fvi_compared *p, double tolerance, char text[200])
{
    size_t off = 0, off_zero = 0, shift;
    double factor;
    for (size_t i = 0; i < p->count; i++) {
        if (!isfinite(p->given[i]) || !isfinite(p->exact[i])) {
            snprintf(text, 200, "%s not finite",
                     isfinite(p->exact[i]) ? "backward is" : "the function is");
            return FV_CAUSE_NOT_FINITE;
        }
        if (fabs(p->given[i] - p->exact[i]) > tolerance) {
            off++;
            off_zero += p->given[i] == 0;
        }
    }
    if (largest(p->count, p->given) == 0) {
        snprintf(text, 200, "the gradient is forgotten, it is zero everywhere");
        return FV_CAUSE_FORGOTTEN;
    }
    if (is_factor(p, tolerance, &factor) && p->count > 1) {
        if (fabs(factor + 1) < 1e-6) {
            snprintf(text, 200, "the sign is wrong");
            return FV_CAUSE_SIGN;
        }
        name_factor(p, factor, text);
        return FV_CAUSE_FACTOR;
    }
    const double slack = tolerance + 1e-9 * largest(p->count, p->exact);
    if (is_transposed(p, slack)) {
        snprintf(text, 200, "it is transposed");
        return FV_CAUSE_TRANSPOSED;
    }
    if (p->columns > 1 && is_reordered(p, p->columns, slack, &shift)) {
        if (shift > 0)
            snprintf(text, 200, "the rows are shifted by %zu", shift);
        else
            snprintf(text, 200, "the rows are in another order");
        return FV_CAUSE_ORDER;
    }
    if (is_reordered(p, 1, slack, &shift)) {
        snprintf(text, 200, "the right numbers stand in other places");
        return FV_CAUSE_ORDER;
    }
    if (off > 0 && off <= p->count / 2) {
        snprintf(text, 200, "only %zu of %zu elements differ%s", off, p->count,
                 off_zero == off ? ", where it is zero" : "");
        return FV_CAUSE_ELEMENTS;
    }
    if (is_term(p, tolerance, text))
        return FV_CAUSE_TERM;
    if (p->count == 1 && is_factor(p, tolerance, &factor)) {
        const bool sign = fabs(factor + 1) < 1e-6;
        if (sign)
            snprintf(text, 200, "the sign is wrong");
        else
            name_factor(p, factor, text);
        return sign ? FV_CAUSE_SIGN : FV_CAUSE_FACTOR;
    }
    snprintf(text, 200, "%zu of %zu elements differ, in no simple pattern", off, p->count);
    return FV_CAUSE_UNKNOWN;
}

#endif
