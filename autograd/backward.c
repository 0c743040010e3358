/* Reverse mode: from a loss of one number to the gradient of everything it was made of. */
#include "autograd/internal.h"

#include <string.h>

/* Memory of a gradient that is used up; its first bytes hold this. The arena gives whole units of
 * FVI_ALIGN bytes, and one for no numbers at all, so that there is always room. */
struct fvi_spare {
    struct fvi_spare *next;
    size_t count;
};
_Static_assert(sizeof(struct fvi_spare) <= FVI_ALIGN, "a gradient of no numbers holds it");

/* When training, a value's gradient is used up once its op's rule has run. A view has none of its own,
 * and those of gathered rows are read again at the end. */
static void give_back(fv_tape *t, fv_var *v)
{
    const fv_op *const *op = t->ops->op;
    if (t->mode != FV_TRAIN)
        return;
    if (v->op != op[FVI_OP_reshape] && v->op != op[FVI_OP_gather] &&
        v->op != op[FVI_OP_gather_bags]) {
        struct fvi_spare *spare = (void *)v->grad;
        *spare = (struct fvi_spare){t->spare, fvi_count(v)};
        t->spare = spare;
    }
    v->grad = NULL;
}

/* Where a gradient of that size was given back, which the cache still holds, or new memory; not cleared. */
static fv_real *take_gradient(fv_tape *t, size_t count)
{
    for (struct fvi_spare **at = &t->spare; *at != NULL; at = &(*at)->next)
        if ((*at)->count == count) {
            void *found = *at;
            *at = (*at)->next;
            return found;
        }
    return fvi_tape_take(t, count, sizeof(fv_real));
}

fv_real *fvi_grad_blank(fv_tape *t, fv_var *x, bool *blank)
{
    *blank = false;
    if (x == NULL || !x->needs_grad || x->grad != NULL)
        return x == NULL ? NULL : x->grad;
    if (x->op == t->ops->op[FVI_OP_reshape]) /* a view: its gradient is a view too */
        return x->grad = fvi_grad_blank(t, x->in[0], blank);
    if (x->use != NULL)
        return x->grad = x->use->grad = fvi_tape_result(t, fvi_count(x), sizeof(fv_real));
    x->grad = take_gradient(t, fvi_count(x));
    *blank = x->grad != NULL;
    return x->grad;
}

fv_real *fv_grad(fv_tape *t, fv_var *x)
{
    bool blank;
    fv_real *grad = fvi_grad_blank(t, x, &blank);
    return blank ? memset(grad, 0, fvi_count(x) * sizeof *grad) : grad;
}

static void forget_gradients(fv_tape *t)
{
    for (fv_var *v = t->last; v != NULL; v = v->previous) {
        v->grad = NULL;
        if (v->use != NULL) {
            v->use->gathered = NULL;
            v->use->grad = NULL;
            v->use->touched = 0;
        }
    }
}

/* A table that was gathered from gets its gradient by rows, or added to a dense one where it also has that. */
static void finish_table(fv_tape *t, fvi_use *use)
{
    const fv_shape shape = use->var->value.shape;
    size_t entries = 0, d = shape.size[1];
    for (const fvi_gathered *g = use->gathered; g != NULL; g = g->next)
        entries += g->bags ? fv_segments_rows(g->bags) : g->count;
    if (use->grad == NULL) {
        size_t most = entries < shape.size[0] ? entries : shape.size[0];
        if (use->slots != shape.size[0]) { /* new, or another set's parameter at that address */
            fvi_free(use->slot);
            use->slot = fvi_calloc(shape.size[0], sizeof *use->slot);
            use->slots = use->slot ? shape.size[0] : 0;
        }
        if (use->slot == NULL)
            fv_fail(&t->error, FV_FAILED, "out of memory for the rows of %s", use->param->name);
        use->rows = fvi_tape_result(t, most, sizeof *use->rows);
        use->row_grad = fvi_tape_result(t, most * d, sizeof *use->row_grad);
        if (!fv_tape_ok(t))
            return;
    }
    t->ops->sum_gathered(t, use, d, use->grad);
}

bool fv_backward(fv_tape *t, fv_var *loss)
{
    if (!fv_tape_ok(t))
        return false;
    if (loss == NULL)
        return fv_refuse(t, "backward", "no loss") != NULL;
    if (fvi_count(loss) != 1)
        return fv_refuse(t, "backward", "the loss is %s, expected one number",
                         fv_describe(t, loss)) != NULL;
    if (!loss->needs_grad)
        return fv_refuse(t, "backward", "the loss depends on nothing that has a gradient%s",
                         t->mode == FV_EVAL ? " (the tape is in FV_EVAL)" : "") != NULL;
    forget_gradients(t);
    fv_real *seed = fv_grad(t, loss);
    if (seed != NULL)
        seed[0] = 1;
    for (fv_var *v = loss; v != NULL && fv_tape_ok(t); v = v->previous)
        if (v->grad != NULL && v->op != NULL) {
            v->op->backward(t, v);
            give_back(t, v);
        }
    for (size_t i = 0; i < t->uses_capacity && fv_tape_ok(t); i++)
        if (t->uses[i].gathered != NULL)
            finish_table(t, &t->uses[i]);
    return fv_tape_ok(t);
}

const fv_real *fv_param_grad(const fv_tape *t, const fv_param *param)
{
    const fvi_use *use = fvi_find_use(t, param);
    return use != NULL ? use->grad : NULL;
}

size_t fv_touched(const fv_tape *t, const fv_param *param, const int32_t **rows,
                  const fv_real **grad)
{
    const fvi_use *use = fvi_find_use(t, param);
    if (use == NULL || use->touched == 0)
        return 0;
    *rows = use->rows;
    *grad = use->row_grad;
    return use->touched;
}
