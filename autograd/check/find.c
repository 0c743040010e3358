/* After a mismatch: the element where it is worst, whether that is a mistake, a kink or noise, and the line
 * that says so. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>
#include <string.h>

enum {
    MOST = 1024, /* elements that are looked at one by one */
    CLOSER = 32  /* and of the worst of them, from several sides */
};

const char *fvi_check_opening(const fvi_check *c, char text[120])
{
    text[0] = 0;
    if (c->of_rule)
        snprintf(text, 120, "op %.60s (value %zu on the tape): ", c->rule->op->name, c->place);
    else if (c->one_output)
        snprintf(text, 120, "output %zu: ", c->output);
    return text;
}

const char *fvi_check_name(const fvi_check *c, int part, char text[300])
{
    const fvi_part *p = &c->part[part];
    char shape[160];
    fv_shape_text(p->shape, shape);
    if (p->param != NULL) {
        snprintf(text, 300, "%.120s %s", p->param->name, shape);
    } else if (c->of_rule) {
        const int k = fvi_rule_input(c->rule, part);
        const char *name = c->rule->in[k]->name;
        snprintf(text, 300, "its input %d%s%.100s %s", k, name ? ", " : "", name ? name : "",
                 shape);
    } else {
        snprintf(text, 300, "input %d %s", part, shape);
    }
    return text;
}

/* "element 7 (row 1, column 3, value 0.5)" */
static const char *element_text(const fvi_check *c, int part, size_t index, char text[160])
{
    const fvi_part *p = &c->part[part];
    char value[FVI_NUMBER];
    fvi_number(value, (double)fv_re(c->start[p->at + index]), 6);
    const size_t d = p->shape.rank > 0 ? p->shape.size[p->shape.rank - 1] : 1;
    if (p->shape.rank > 1)
        snprintf(text, 160, "element %zu (row %zu, column %zu, value %s)", index, index / d,
                 index % d, value);
    else
        snprintf(text, 160, "element %zu (value %s)", index, value);
    return text;
}

/* ---- the elements of a part ----------------------------------------------------------------------------- */

typedef struct {
    int part;
    size_t first, count;       /* of its elements */
    double *given, *exact, *x; /* [count] */
    double largest;            /* of exact */
    double tolerance;
} sweep;

static double apart(const sweep *s, size_t i)
{
    const double off = fabs(s->given[i] - s->exact[i]);
    return isnan(off) ? (double)INFINITY : off;
}

/* Of a large part, the run of rows where the mismatch is worst. */
static void choose_range(fvi_check *c, sweep *s)
{
    const fvi_part *p = &c->part[s->part];
    const size_t d = p->shape.rank > 0 ? p->shape.size[p->shape.rank - 1] : 1;
    const size_t most = d < MOST ? MOST / d * d : MOST;
    double worst = -1;
    s->count = p->count < most ? p->count : most;
    for (size_t first = 0; p->count > most && first < p->count; first += most) {
        double scale;
        fvi_check_along(c, s->part, c->o.seed + 1);
        c->sampler.first = first;
        c->sampler.end = first + most < p->count ? first + most : p->count;
        const double given = fvi_check_given(c, c->gradient, &scale);
        double off = fabs(given - fvi_check_slope(c, c->o.step));
        off = isnan(off) ? (double)INFINITY : off;
        if (off > worst) {
            worst = off;
            s->first = first;
            s->count = c->sampler.end - first;
        }
    }
}

static bool sweep_part(fvi_check *c, int part, sweep *s)
{
    *s = (sweep){.part = part};
    choose_range(c, s);
    s->given = fvi_check_take(c, s->count, sizeof *s->given);
    s->exact = fvi_check_take(c, s->count, sizeof *s->exact);
    s->x = fvi_check_take(c, s->count, sizeof *s->x);
    if (s->given == NULL || s->exact == NULL || s->x == NULL)
        return false;
    for (size_t i = 0; i < s->count; i++) {
        const size_t at = c->part[part].at + s->first + i;
        fvi_check_element(c, part, s->first + i);
        s->given[i] = (double)fv_re(c->gradient[at]);
        s->x[i] = (double)fv_re(c->start[at]);
        s->exact[i] = fvi_check_slope(c, c->o.step);
        if (c->result->error.status != FV_OK)
            return false;
        if (fabs(s->exact[i]) > s->largest)
            s->largest = fabs(s->exact[i]);
    }
    const double least = 0.01 * (c->size > 1 ? c->size : 1);
    s->tolerance = c->o.first_order * (s->largest > least ? s->largest : least);
    return true;
}

/* ---- the line ---------------------------------------------------------------------------------------------- */

static void say(fvi_check *c, const sweep *s, size_t i, const fvi_look *look)
{
    fv_gradcheck_result *r = c->result;
    char opening[120], name[300], element[160], cause[200] = "", a[FVI_NUMBER], b[FVI_NUMBER],
                                                e[FVI_NUMBER];
    fvi_check_opening(c, opening);
    fvi_check_name(c, s->part, name);
    element_text(c, s->part, s->first + i, element);
    fvi_number(a, s->given[i], 12);
    fvi_number(b, look->slope, 12);
    fvi_number(e, look->rounding, 2);
    if (r->error.status == FV_OK) {
        const fvi_part *p = &c->part[s->part];
        r->input = c->of_rule ? fvi_rule_input(c->rule, s->part)
                   : p->param ? (int)p->param->index
                              : s->part;
        r->index = s->first + i;
        r->given = s->given[i];
        r->exact = look->slope;
        r->given_rounding = look->rounding;
    }
    if (look->verdict == FV_CHECK_KINK) {
        fvi_check_say(c, FV_CHECK_KINK, FV_CAUSE_NONE, "%s%s at %s sits on a kink: move this input",
                      opening, name, element);
        return;
    }
    if (look->verdict == FV_CHECK_NOISY) {
        fvi_check_say(
            c, FV_CHECK_NOISY, FV_CAUSE_NONE,
            "%scannot tell, too noisy: gradient of %s at %s: backward gives %s, the function "
            "changes by %s, rounding about %s; keep inputs and outputs near 1, or link "
            "libfoveac, which takes no differences",
            opening, name, element, a, b, e);
        return;
    }
    const fvi_compared compared = {
        .count = s->count,
        .columns = c->part[s->part].shape.rank > 0
                       ? c->part[s->part].shape.size[c->part[s->part].shape.rank - 1]
                       : 1,
        .given = s->given,
        .exact = s->exact,
        .x = s->x,
        .outputs = c->outputs,
        .y = c->value,
        .dy = c->weights};
    fv_check_cause found = fvi_check_cause(&compared, s->tolerance, cause);
    if (c->exact && found != FV_CAUSE_NOT_FINITE) { /* do real steps side with backward? */
        c->exact = false;
        fvi_check_element(c, s->part, s->first + i);
        const double real = fvi_check_slope(c, c->o.step);
        c->exact = true;
        if (fabs(real - s->given[i]) < 0.01 * fabs(real - look->slope)) {
            found = FV_CAUSE_TANGENT;
            snprintf(cause, sizeof cause,
                     "forward loses the imaginary part; by real steps the gradient is right");
        }
    }
    if (c->rules_right && found != FV_CAUSE_TANGENT && found != FV_CAUSE_NOT_FINITE) {
        found = FV_CAUSE_DETACHED;
        snprintf(cause, sizeof cause,
                 "each op on the tape is right by itself, so part of the function goes around the "
                 "tape (a value copied out and back in?)");
    }
    fvi_check_say(c, FV_CHECK_FAILED, found,
                  "%sgradient of %s at %s: backward gives %s, the function changes by %s (rounding "
                  "about %s): %s",
                  opening, name, element, a, b, e, cause);
}

/* The part along which the mismatch is worst. */
static int worst_part(fvi_check *c)
{
    int worst = 0;
    double most = -1;
    for (int k = 0; k < c->parts; k++) {
        double scale;
        fvi_check_along(c, k, c->o.seed + 1 + (uint64_t)c->parts);
        const double given = fvi_check_given(c, c->gradient, &scale);
        double off = fabs(given - fvi_check_slope(c, c->o.step)) / scale;
        off = isnan(off) ? (double)INFINITY : off;
        if (off > most) {
            most = off;
            worst = k;
        }
    }
    return worst;
}

/* The first element along which the slope jumps; false when there is none. */
static bool find_kink(fvi_check *c, int only)
{
    for (int k = 0; k < c->parts; k++) {
        double scale, unused;
        fvi_check_along(c, k, c->o.seed + 1);
        fvi_check_given(c, c->gradient, &scale);
        if ((only >= 0 && only != k) || !fvi_check_jump(c, scale, &unused))
            continue;
        for (size_t i = 0; i < c->part[k].count; i++) {
            double given = (double)fv_re(c->gradient[c->part[k].at + i]);
            fvi_check_element(c, k, i);
            if (!fvi_check_jump(c, scale, &unused))
                continue;
            const fvi_look look = {FV_CHECK_KINK, given, 0};
            const sweep one = {.part = k, .first = i, .count = 1, .given = &given};
            say(c, &one, 0, &look);
            return true;
        }
    }
    return false;
}

void fvi_check_find(fvi_check *c, int part, fv_check_verdict verdict)
{
    sweep s;
    fvi_look worst_look = {verdict, (double)NAN, 0};
    size_t worst = 0;
    if (part < 0 && verdict == FV_CHECK_KINK && find_kink(c, -1))
        return;
    if (!sweep_part(c, part < 0 ? worst_part(c) : part, &s))
        return;
    /* The worst elements, each left out once it was looked at. */
    bool *done = fvi_check_take(c, s.count, sizeof *done), any = false;
    for (int round = 0; done != NULL && round < CLOSER; round++) {
        size_t at = SIZE_MAX;
        for (size_t i = 0; i < s.count; i++)
            if (!done[i] && (at == SIZE_MAX || apart(&s, i) > apart(&s, at)))
                at = i;
        if (at == SIZE_MAX || (any && !(apart(&s, at) > s.tolerance)))
            break;
        done[at] = true;
        fvi_check_element(c, s.part, s.first + at);
        const fvi_look look = fvi_check_look(c, s.given[at], s.largest, s.tolerance);
        const bool failed = look.verdict == FV_CHECK_FAILED;
        if (!any || failed ||
            (look.verdict == FV_CHECK_KINK && worst_look.verdict != FV_CHECK_KINK)) {
            worst = at;
            worst_look = look;
        }
        any = true;
        if (failed)
            break;
    }
    if (!any)
        return;
    if (worst_look.verdict != FV_CHECK_FAILED && verdict == FV_CHECK_KINK && find_kink(c, s.part))
        return;
    if (worst_look.verdict == FV_CHECK_PASSED) /* each is right within what all together are not */
        worst_look.verdict = verdict;
    if (isnan(worst_look.slope))
        worst_look.slope = s.exact[worst];
    say(c, &s, worst, &worst_look);
}

#endif
