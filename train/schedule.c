/* The learning rate over time: a linear warm-up, then one of four kinds of decay. */
#include "train/internal.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

bool fvi_schedule_check(const fv_schedule *schedule, fv_error *error)
{
    if (schedule == NULL)
        return true;
    if ((unsigned)schedule->kind > FV_INVERSE_SQRT)
        return fv_fail(error, FV_USAGE, "schedule: no kind has number %d", (int)schedule->kind);
    if (!(schedule->warmup >= 0 && schedule->warmup <= FVI_LAST_WHOLE))
        return fv_fail(error, FV_USAGE,
                       "schedule: warmup must be 0 or more steps, or a share below 1");
    if (!(schedule->final >= 0 && isfinite(schedule->final)))
        return fv_fail(error, FV_USAGE,
                       "schedule: final must be 0 or more, as a share of the rate");
    return true;
}

/* Steps of warm-up; what is not a number or below 0 counts as none. */
static double warmup_steps(double warmup, double total)
{
    if (!(warmup > 0))
        return 0;
    return floor((warmup < 1 ? warmup * total : warmup) + 0.5);
}

double fv_schedule_at(const fv_schedule *schedule, uint64_t step, uint64_t total)
{
    if (schedule == NULL)
        return 1;
    double s = (double)step, end = (double)total, warmup = warmup_steps(schedule->warmup, end);
    if (s < warmup)
        return (s + 1) / warmup;

    double left = s < end ? (end - s) / (end - warmup) : 0; /* s >= warmup, so end > warmup */
    double final = schedule->final;
    switch (schedule->kind) {
    case FV_LINEAR:
        return final + (1 - final) * left;
    case FV_COSINE:
        return final + (1 - final) * 0.5 * (1 - cos(pi * left));
    case FV_INVERSE_SQRT:
        return sqrt((warmup > 1 ? warmup : 1) / (s + 1));
    case FV_CONSTANT:
        break;
    }
    return 1;
}
