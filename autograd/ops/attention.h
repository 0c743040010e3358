/* What the files of attention share: a recorded call, and the kernel's view of it. */
#ifndef FVI_OPS_ATTENTION_H
#define FVI_OPS_ATTENTION_H

#include "autograd/ops/ops.h"

/* The call without its data, which the inputs hold. */
typedef struct {
    fv_mask mask;
    bool masked;
    fvi_attention form;
} attention_options;

/* Inputs; in self-attention q, k and v stand side by side in the first, and the others follow. */
enum {
    IN_Q,
    IN_K,
    IN_V,
    IN_RELATIVE,
    IN_SLOPES,
    IN_BIAS,
    IN_WEIGHT,
    IN_EDGE_K,
    IN_EDGE_V,
    IN_RELATIVE_V,
    INPUTS
};

static inline fv_var *input(const fv_var *y, int which, bool together)
{
    return y->in[!together ? which : which <= IN_V ? 0 : which - 2];
}

static inline const fv_real *numbers(const fv_var *y, int which, bool together)
{
    const fv_var *x = input(y, which, together);
    return x ? x->value.data : NULL;
}

/* The kernel's view of a recorded call. */
static inline fvi_attention call_of(const fv_var *y, bool together)
{
    const attention_options *o = y->options;
    const fv_var *q = input(y, IN_Q, together), *k = input(y, IN_K, together),
                 *v = input(y, IN_V, together);
    fvi_attention a = o->form;
    a.mask = o->masked ? &o->mask : NULL;
    a.q = q->value.data;
    a.k = k->value.data + (together ? a.heads * a.qk : 0);
    a.v = v->value.data + (together ? (a.heads + a.kv_heads) * a.qk : 0);
    a.q_row = fvi_columns(q);
    a.k_row = fvi_columns(k);
    a.v_row = fvi_columns(v);
    a.y = y->value.data;
    a.lse = y->saved;
    a.relative = numbers(y, IN_RELATIVE, together);
    a.slopes = numbers(y, IN_SLOPES, together);
    a.bias = numbers(y, IN_BIAS, together);
    a.weight = numbers(y, IN_WEIGHT, together);
    a.pair_k = numbers(y, IN_EDGE_K, together);
    a.pair_v = numbers(y, IN_EDGE_V, together);
    a.relative_v = numbers(y, IN_RELATIVE_V, together);
    return a;
}

#endif
