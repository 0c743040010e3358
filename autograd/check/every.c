/* Looking at everything: each element of each input, or the whole Jacobian by forward and by reverse mode. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>
#include <string.h>

/* The largest of a gradient's numbers, and no less than what is rounding of the output. */
static double scale_of(const fvi_check *c, size_t count, const fv_real *gradient)
{
    double largest = 0.01 * (c->size > 1 ? c->size : 1);
    for (size_t i = 0; i < count; i++)
        if (fabs((double)fv_re(gradient[i])) > largest)
            largest = fabs((double)fv_re(gradient[i]));
    return largest;
}

bool fvi_check_elements(fvi_check *c)
{
    for (int k = 0; k < c->parts; k++) {
        const double scale = scale_of(c, c->part[k].count, c->gradient + c->part[k].at);
        for (size_t i = 0; i < c->part[k].count; i++) {
            const double given = (double)fv_re(c->gradient[c->part[k].at + i]);
            fvi_check_element(c, k, i);
            double error = fabs(fvi_check_slope(c, c->o.step) - given) / scale;
            if (c->result->error.status != FV_OK)
                return false;
            if (!(error <= c->o.first_order)) {
                const fvi_look look = fvi_check_look(c, given, scale, c->o.first_order * scale);
                if (look.verdict != FV_CHECK_PASSED) {
                    c->result->first_order = error;
                    fvi_check_find(c, k, look.verdict);
                    return false;
                }
                error = fabs(look.slope - given) / scale;
            }
            if (error > c->result->first_order)
                c->result->first_order = error;
        }
    }
    return true;
}

/* From now on the check is of one output alone. */
static void choose_output(fvi_check *c, size_t output, const fv_real *row)
{
    memset(c->weights, 0, c->outputs * sizeof *c->weights);
    c->weights[output] = 1;
    c->size = fabs(c->value[output]);
    memcpy(c->gradient, row, c->total * sizeof *row);
    c->one_output = true;
    c->output = output;
}

bool fvi_check_jacobian(fvi_check *c)
{
    enum { MOST = 1 << 22 };
    size_t numbers;
    if (!fvi_mul(c->outputs, c->total, &numbers) || numbers > MOST)
        return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_NONE,
                             "gradcheck: a Jacobian of %zu x %zu numbers is too large, at most %d; "
                             "opts.full looks at every input element instead",
                             c->outputs, c->total, (int)MOST);
    fv_real *rows = fvi_check_take(c, numbers, sizeof *rows);
    double *weights = fvi_check_take(c, c->outputs, sizeof *weights),
           *scale = fvi_check_take(c, c->outputs, sizeof *scale);
    if (rows == NULL || weights == NULL || scale == NULL)
        return false;
    fvi_check_stay(c);
    for (size_t r = 0; r < c->outputs; r++) {
        weights[r] = 1;
        if (!fvi_check_gradient(c, weights, rows + r * c->total))
            return false;
        weights[r] = 0;
        scale[r] = scale_of(c, c->total, rows + r * c->total);
    }
    for (int k = 0; k < c->parts; k++)
        for (size_t i = 0; i < c->part[k].count; i++) {
            fvi_check_element(c, k, i);
            if (!fvi_check_tangent(c, c->o.step))
                return false;
            for (size_t r = 0; r < c->outputs; r++) {
                const double given = (double)fv_re(rows[r * c->total + c->part[k].at + i]);
                const double error = fabs(given - c->tangent[r]) / scale[r];
                if (error <= c->o.first_order) {
                    if (error > c->result->first_order)
                        c->result->first_order = error;
                    continue;
                }
                choose_output(c, r, rows + r * c->total);
                const fvi_look look =
                    fvi_check_look(c, given, scale[r], c->o.first_order * scale[r]);
                if (look.verdict == FV_CHECK_PASSED) {
                    if (!fvi_check_tangent(c, c->o.step))
                        return false;
                    continue;
                }
                fvi_check_find(c, k, look.verdict);
                return false;
            }
        }
    return true;
}

#endif
