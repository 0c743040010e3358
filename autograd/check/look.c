/* When backward and the function disagree along a direction: is the gradient wrong, does the function have a
 * kink there, or is it too noisy to tell? Smooth functions answer steps of h, h/2, h/4 .. ever more alike, by
 * h^4; one that bends inside a step does not; and noise grows as the step shrinks. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>

static const double EPS = 2.220446049250313e-16;

/* From points that far apart; what is smooth does not show in fourth differences. */
static double noise_at(fvi_check *c, double spacing)
{
    enum { POINTS = 13, FOURTH = POINTS - 4 };
    double f[POINTS], fourth[FOURTH];
    for (int i = 0; i < POINTS; i++)
        f[i] = fvi_check_change(c, (i - POINTS / 2) * spacing);
    for (int i = 0; i < FOURTH; i++) { /* sorted as they come; a kink spoils the largest three */
        double d = fabs(f[i + 4] - 4 * f[i + 3] + 6 * f[i + 2] - 4 * f[i + 1] + f[i]);
        int at = i;
        for (; at > 0 && fourth[at - 1] > d; at--)
            fourth[at] = fourth[at - 1];
        fourth[at] = d;
    }
    return fourth[FOURTH / 2] / sqrt(70.0);
}

double fvi_check_noise(fvi_check *c)
{
    const double fine = noise_at(c, 1e-6), coarse = noise_at(c, 1e-4), least = EPS * c->size;
    const double most = fine > coarse ? fine : coarse;
    return most > least ? most : least;
}

bool fvi_check_jump(fvi_check *c, double scale, double *real_slope)
{
    const double h = 1e-6;
    const double up = fvi_check_change(c, h), down = fvi_check_change(c, -h);
    const double whole = (up + down) / h;
    const double half = (fvi_check_change(c, h / 2) + fvi_check_change(c, -h / 2)) / (h / 2);
    /* whole = jump + curvature h, half = jump + curvature h / 2 */
    const double jump = 2 * half - whole;
    *real_slope = (up - down) / (2 * h);
    if (!(fabs(jump) > 1e-6 * scale + 100 * EPS * c->size / h))
        return false;
    const double quarter = (fvi_check_change(c, h / 4) + fvi_check_change(c, -h / 4)) / (h / 4);
    const double again = 2 * quarter - half;
    return fabs(again) > 0.5 * fabs(jump) && fabs(jump) > 100 * fvi_check_noise(c) / h;
}

/* Differences of ever smaller steps, and what they tell: the best estimate is where its neighbour's distance
 * and the noise are least. */
static fvi_look refine(fvi_check *c, double given, double tolerance)
{
    enum { STEPS = 8 };
    const double noise = fvi_check_noise(c);
    double slope[STEPS], h = c->o.step;
    fvi_look look = {FV_CHECK_FAILED, (double)NAN, (double)INFINITY};
    bool bends = false;
    for (int i = 0; i < STEPS; i++)
        slope[i] = fvi_check_slope(c, ldexp(h, -2 * i));
    for (int i = 0; i < STEPS; i++, h /= 4) {
        const double apart = fabs(slope[i] - slope[i > 0 ? i - 1 : 1]), rounding = 4 * noise / h;
        /* Smooth: each distance is 1/256 (two points: 1/16) of the last. A kink: as large as before, or
         * gone at once, when the step no longer reaches it. */
        if (i > 1) {
            const double before = fabs(slope[i - 1] - slope[i - 2]);
            const double fall = c->o.points == 2 ? 8 : 40;
            if (before > tolerance && before > 100 * rounding &&
                (apart > before / fall || apart < before / (100 * fall)))
                bends = true;
        }
        const double error = apart > rounding ? apart : rounding;
        if (error < look.rounding) {
            look.rounding = error;
            look.slope = slope[i];
        }
    }
    const double off = fabs(given - look.slope);
    if (off <= tolerance || off <= 2 * look.rounding)
        look.verdict = bends                                                 ? FV_CHECK_KINK
                       : off <= tolerance && look.rounding <= 10 * tolerance ? FV_CHECK_PASSED
                                                                             : FV_CHECK_NOISY;
    return look;
}

fvi_look fvi_check_look(fvi_check *c, double given, double scale, double tolerance)
{
    fvi_look look = {FV_CHECK_FAILED, 0, 0};
    double real_slope;
    const bool jumps = fvi_check_jump(c, scale, &real_slope);
    if (c->exact) {
        look.slope = fvi_check_slope(c, 0);
        look.rounding = 4 * EPS * (scale > c->size ? scale : c->size);
        if (fabs(look.slope - given) <= tolerance)
            look.verdict = FV_CHECK_PASSED;
    } else {
        look = refine(c, given, tolerance);
    }
    if (jumps)
        look.verdict = FV_CHECK_KINK;
    return look;
}

#endif
