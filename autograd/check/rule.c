/* Each op of a function checked alone: its forward and backward run again on a tape of their own, on the
 * inputs and options they had. So a mistake deep inside a model is found where it is made. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>
#include <string.h>

/* An op that stands in for another until fv_record has made the value. */
typedef struct {
    fv_op op;
    const fv_var *original;
} stand_in;

static bool stand_in_forward(fv_tape *t, fv_var *y)
{
    const stand_in *from = (const stand_in *)(const void *)y->op;
    y->op = from->original->op;
    y->options = from->original->options;
    return y->op->forward(t, y);
}

/* Whether v's input k is the first place of one that has a gradient. */
static bool is_part(const fv_var *v, int k)
{
    if (v->in[k] == NULL || !v->in[k]->needs_grad)
        return false;
    for (int j = 0; j < k; j++)
        if (v->in[j] == v->in[k])
            return false;
    return true;
}

int fvi_rule_input(const fv_var *v, int part)
{
    int k = 0;
    for (; k < v->inputs; k++)
        if (is_part(v, k) && part-- == 0)
            break;
    return k;
}

/* A check's function: the op of c->rule on inputs that start where its own stood. */
static fv_var *replay(fv_sampler *s, void *context)
{
    const fvi_check *c = context;
    const fv_var *v = c->rule;
    fv_tape *t = s->tape;
    fv_var **in = fv_tape_alloc(t, (size_t)v->inputs, sizeof *in);
    stand_in *op = fv_tape_alloc(t, 1, sizeof *op);
    for (int k = 0; in != NULL && k < v->inputs; k++) {
        const fv_var *x = v->in[k];
        if (x == NULL)
            continue;
        for (int j = 0; j < k; j++)
            if (v->in[j] == x)
                in[k] = in[j];
        if (in[k] == NULL)
            in[k] = x->needs_grad ? fv_sample_from(s, x->value.shape, x->value.data)
                                  : fv_constant(t, x->value.shape, x->value.data);
        if (in[k] == NULL)
            return NULL;
    }
    if (in == NULL || op == NULL)
        return NULL;
    *op = (stand_in){*v->op, v};
    op->op.forward = stand_in_forward;
    t->recorded = c->place; /* random numbers are keyed by it */
    return fv_record(t, &op->op, v->value.shape, NULL, 0, v->inputs, in);
}

/* A check of one op alone; open it before, close it after. */
static void begin_rule(const fvi_check *from, const fv_var *v, size_t place,
                       fv_gradcheck_result *result, fvi_check *c)
{
    *result = (fv_gradcheck_result){.second_order = -1, .tangent = -1};
    *c = (fvi_check){.fn = replay,
                     .context = c,
                     .o = from->o,
                     .result = result,
                     .of_rule = true,
                     .rule = v,
                     .place = place};
    if (from->exact)
        c->o.points = 0;
}

static void adopt(fvi_check *c, const fv_var *v, size_t place, const fv_gradcheck_result *found,
                  const char *seen)
{
    fv_gradcheck_result *r = c->result;
    if (r->error.status != FV_OK)
        return;
    snprintf(r->op, sizeof r->op, "%s", v->op->name);
    r->place = place;
    r->input = found->input;
    r->index = found->index;
    r->given = found->given;
    r->exact = found->exact;
    r->given_rounding = found->given_rounding;
    fvi_check_say(c, found->verdict, found->cause, "%.800s%s%.120s", found->error.text,
                  seen ? "; seen in " : "", seen ? seen : "");
}

/* Runs the function where its inputs stand, so that the tape holds the values that rules are checked on. */
static fv_var *recorded(fvi_check *c, size_t *count)
{
    fvi_check_stay(c);
    if (fvi_check_run(c) == NULL)
        return NULL;
    *count = c->sampler.tape->recorded;
    return c->sampler.tape->last;
}

/* Whether there is a rule to check. */
static bool has_rule(const fv_var *v)
{
    return v->op != NULL && v->needs_grad && v->op->backward != NULL;
}

/* ---- does it add? ---------------------------------------------------------------------------------------- */

/* A gradient that was there before, so that one can tell. */
static double preset(size_t i)
{
    return 3 + (double)(i % 5);
}

/* Runs the op's backward on gradients that are new, or preset: into[total] gets what it left. */
static bool backward_into(fvi_check *rule, bool start_preset, fv_real *into)
{
    fv_sampler *s = &rule->sampler;
    fv_var *y = fvi_check_run(rule);
    for (int k = 0; y != NULL && start_preset && k < rule->parts; k++) {
        fv_real *dx = fv_grad(s->tape, s->input[k]);
        for (size_t i = 0; dx != NULL && i < fvi_count(s->input[k]); i++)
            dx[i] = (fv_real)preset(i);
    }
    fv_real *dy = y ? fv_grad(s->tape, y) : NULL;
    if (dy == NULL || !fv_tape_ok(s->tape))
        return false;
    for (size_t i = 0; i < rule->outputs; i++)
        dy[i] += (fv_real)rule->weights[i];
    y->op->backward(s->tape, y);
    for (int k = 0; k < rule->parts; k++) {
        const fv_real *dx = fv_grad(s->tape, s->input[k]);
        if (dx != NULL)
            memcpy(into + rule->part[k].at, dx, rule->part[k].count * sizeof *into);
    }
    return fv_tape_ok(s->tape);
}

static bool adds(fvi_check *rule)
{
    char opening[120], name[300];
    fv_real *once = fvi_check_take(rule, rule->total, sizeof *once),
            *onto = fvi_check_take(rule, rule->total, sizeof *onto);
    if (once == NULL || onto == NULL || !backward_into(rule, false, once) ||
        !backward_into(rule, true, onto))
        return fv_tape_ok(rule->sampler.tape) || fvi_check_stop(rule);
    for (int k = 0; k < rule->parts; k++)
        for (size_t i = 0; i < rule->part[k].count; i++) {
            const size_t at = rule->part[k].at + i;
            const double alone = (double)fv_re(once[at]);
            const double added = (double)fv_re(onto[at]) - preset(i);
            if (!(fabs(added - alone) > 1e-9 * (fabs(alone) + preset(i))))
                continue;
            rule->result->input = fvi_rule_input(rule->rule, k);
            rule->result->index = i;
            rule->result->given = added;
            rule->result->exact = alone;
            const bool assigned = fabs(added + preset(i) - alone) <= 1e-9 * fabs(alone);
            return fvi_check_say(
                rule, FV_CHECK_FAILED, assigned ? FV_CAUSE_ASSIGNED : FV_CAUSE_UNKNOWN, "%s%s %s%s",
                fvi_check_opening(rule, opening),
                assigned ? "backward assigns to the gradient of"
                         : "backward does not add the same to a gradient that is there as to a new "
                           "one of",
                fvi_check_name(rule, k, name),
                assigned ? ", where it should add to it (a value may be used more than once)" : "");
        }
    return true;
}

bool fvi_check_rules(fvi_check *c, bool (*look)(fvi_check *), const char *seen)
{
    size_t place = 0;
    bool right = true;
    fv_var *v = recorded(c, &place);
    if (v == NULL)
        return fvi_check_stop(c);
    for (; right && v != NULL; v = v->previous) {
        place--;
        if (!has_rule(v))
            continue;
        fv_gradcheck_result found;
        fvi_check rule;
        begin_rule(c, v, place, &found, &rule);
        const bool open = fvi_check_open(&rule);
        /* One that cannot run alone is not judged, unless memory is out. */
        if (open ? (!adds(&rule) || !look(&rule)) && found.verdict == FV_CHECK_FAILED
                 : found.error.status == FV_FAILED) {
            adopt(c, v, place, &found, seen);
            right = false;
        }
        fvi_check_close(&rule);
    }
    c->rules_right = right;
    return right;
}

static bool nothing_else(fvi_check *c)
{
    (void)c;
    return true;
}

bool fvi_check_rules_add(fvi_check *c)
{
    return fvi_check_rules(c, nothing_else, NULL);
}

#endif
