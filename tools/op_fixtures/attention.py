"""Cases of scaled dot product attention."""

import torch
from torch.nn import functional as F

from op_fixtures.record import case, family, rand, truths


def sdpa(**options):
    def call(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    return call


def attend(q, k, v, bias=None, visible=None, causal=False, scale=None, gqa=False):
    """[samples, heads, time, d]; bias is added to the scores and has a gradient, visible is PyTorch's
    boolean mask."""
    bools = None if visible is None else visible.bool()
    fn = sdpa(is_causal=causal, scale=scale, enable_gqa=gqa)
    call = fn if bias is not None else lambda q, k, v: fn(q, k, v, bools)
    case(
        "sdpa",
        call,
        *([q, k, v] if bias is None else [q, k, v, bias]),
        causal=int(causal) or None,
        scale=scale,
        visible=None if visible is None else visible.flatten().tolist(),
        visible_shape=None if visible is None else list(visible.shape),
    )


def attention():
    family("attention")
    for samples, heads, queries, keys, d, vd in (
        (1, 1, 5, 5, 3, 3),
        (2, 2, 3, 4, 2, 2),
        (1, 4, 2, 3, 3, 2),
        (3, 1, 2, 5, 2, 1),
    ):

        def qkv(kv_heads=heads):
            return (
                rand(samples, heads, queries, d),
                rand(samples, kv_heads, keys, d),
                rand(samples, kv_heads, keys, vd),
            )

        attend(*qkv())
        attend(*qkv(), scale=0.375)
        attend(*qkv(), causal=True)
        attend(*qkv(), visible=truths(queries, keys))
        if samples * queries * keys <= 40:
            attend(*qkv(), visible=truths(samples, 1, queries, keys))
            attend(*qkv(), bias=rand(samples, 1, queries, keys))
        if heads * queries * keys <= 40:
            attend(*qkv(), visible=truths(heads, queries, keys))
            attend(*qkv(), bias=rand(heads, queries, keys), scale=1.5)
        attend(*qkv(), bias=rand(queries, keys))
        if heads > 1:
            attend(*qkv(heads // 2), gqa=True)
            attend(*qkv(1), gqa=True, causal=True)
    # a row that sees nothing, and a bias of -inf
    visible = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
    attend(rand(1, 2, 3, 2), rand(1, 2, 3, 2), rand(1, 2, 3, 3), visible=visible)
    hidden = rand(3, 3).masked_fill(visible == 0, -torch.inf)
    hidden[1] = rand(3)
    attend(rand(1, 2, 3, 2), rand(1, 2, 3, 2), rand(1, 2, 3, 3), bias=hidden)
