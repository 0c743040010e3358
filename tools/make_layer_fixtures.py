#!/usr/bin/env python3
"""Writes what PyTorch's layers give in double, with all gradients: tests/data/layers.h, of multi-head attention
tests/data/multihead.h, and tests/data/multihead.npz, a state dict.

Inputs and weights are fractions that both sides compute exactly (see number below), so that only
outputs and gradients are stored. Rows of a batch stand end to end, as in fovea; PyTorch gets them padded,
with a key padding mask, or one sentence at a time. The loss is sum(y * c) with fixed numbers c.

    python3 tools/make_layer_fixtures.py tests/data     (PyTorch 2.13)
"""
import contextlib
import math
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

OFFSETS = [0, 4, 5, 9]
ROWS, D, HEADS, HIDDEN = OFFSETS[-1], 8, 2, 12
IDS = [3, 0, 3, 9, 1, 3, 5, 0, 9]
BAG_OFFSETS = [0, 4, 4, 5, 9]
LABELS = [2, 0, -100, 4, 4, 1, -100, 3, 0]


def number(i, seed):
    """The i-th of a fixed list of multiples of 1/256 in (-0.4, 0.4)."""
    return ((i * 37 + seed * 101) % 199 - 99) / 256


def numbers(shape, seed):
    count = math.prod(shape)
    return torch.tensor([number(i, seed) for i in range(count)]).reshape(shape)


def fill(module):
    """Gives every parameter the numbers that its name stands for."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(numbers(p.shape, sum(name.encode())))
    return module


def array(values):
    return "(const double[]){" + ", ".join(repr(float(v)) for v in values.detach().flatten()) + "}"


def case(name, y, x, parameters):
    """One fixture: output, gradient of the input, and names, shapes and gradients of parameters."""
    parameters = [(n, p) for n, p in parameters]
    (y * numbers(y.shape, 7)).sum().backward()
    dx = "NULL" if x is None else array(x.grad)
    print(f"\nstatic const layer_param {name}_params[] = {{")
    for n, p in parameters:
        shape = "{%d, {%s}}" % (p.dim(), ", ".join(str(s) for s in p.shape))
        print(f'    {{"{n}", {shape}, {array(p.grad)}}},')
    print("    {NULL, {0, {0}}, NULL}};" )
    print(f"static const layer_case {name}_case = {{{y.numel()}, {array(y)}, {dx}, {name}_params}};")


def input_rows(d=D):
    return numbers((ROWS, d), 3).requires_grad_()


def sentences():
    return list(zip(OFFSETS, OFFSETS[1:]))


def padded(x):
    """[sentences, longest, d] and the mask that hides what was padded."""
    parts = [x[a:b] for a, b in sentences()]
    batch = nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=0.5)
    hidden = torch.tensor([[j >= len(p) for j in range(batch.shape[1])] for p in parts])
    return batch, hidden


def unpadded(y):
    return torch.cat([y[i, : b - a] for i, (a, b) in enumerate(sentences())])


def linear():
    for name, bias in (("linear", True), ("linear_no_bias", False)):
        layer, x = fill(nn.Linear(D, 5, bias=bias)), input_rows()
        case(name, layer(x), x, layer.named_parameters())


def embedding():
    layer = fill(nn.Embedding(10, D))
    case("embedding", layer(torch.tensor(IDS)), None, layer.named_parameters())
    layer, bags = fill(nn.Embedding(10, D)), []
    for a, b in zip(BAG_OFFSETS, BAG_OFFSETS[1:]):
        rows = layer(torch.tensor(IDS[a:b], dtype=torch.long))
        bags.append(rows.sum(0) / math.sqrt(max(b - a, 1)))
    case("bags", torch.stack(bags), None, layer.named_parameters())


def norm():
    layer, x = fill(nn.LayerNorm(D)), input_rows()
    case("norm", layer(x), x, layer.named_parameters())


def positions():
    places = torch.tensor([i for a, b in sentences() for i in range(b - a)])
    layer, x = fill(nn.Embedding(6, D)), input_rows()
    case("positions", x + layer(places), x, layer.named_parameters())
    p, c = torch.arange(6.0)[:, None], torch.arange(0, D, 2)
    angle = p / 10000 ** (c / D)
    table = torch.stack([torch.sin(angle), torch.cos(angle)], -1).reshape(6, D)
    x = input_rows()
    case("sinusoidal", x + table[places], x, [])


def multihead():
    for name, bias in (("multihead", True), ("multihead_no_bias", False)):
        layer = fill(nn.MultiheadAttention(D, HEADS, bias=bias, batch_first=True))
        x = input_rows()
        batch, hidden = padded(x)
        y = layer(batch, batch, batch, key_padding_mask=hidden, need_weights=False)[0]
        case(name, unpadded(y), x, layer.named_parameters())
    layer, x, parts = fill(nn.MultiheadAttention(D, HEADS, batch_first=True)), input_rows(), []
    for a, b in sentences():
        ahead = torch.ones(b - a, b - a, dtype=torch.bool).triu(1)
        s = x[None, a:b]
        parts.append(layer(s, s, s, attn_mask=ahead, need_weights=False)[0][0])
    case("multihead_causal", torch.cat(parts), x, layer.named_parameters())


def block():
    for norm_first in (True, False):
        for activation in ("relu", "gelu"):
            layer = fill(nn.TransformerEncoderLayer(D, HEADS, HIDDEN, dropout=0.0, activation=activation,
                                                    batch_first=True, norm_first=norm_first))
            x = input_rows()
            batch, hidden = padded(x)
            y = unpadded(layer(batch, src_key_padding_mask=hidden))
            name = f"block_{'pre' if norm_first else 'post'}_{activation}"
            case(name, y, x, layer.named_parameters())


def cross_entropy():
    for name, smoothing in (("cross_entropy", 0.0), ("cross_entropy_smooth", 0.1)):
        x = input_rows(5)
        loss = F.cross_entropy(8 * x, torch.tensor(LABELS), reduction="sum", ignore_index=-100,
                               label_smoothing=smoothing)
        case(name, loss, x, [])


# ---- multi-head attention in full -----------------------------------------------------------------------

KEY_OFFSETS = [0, 3, 5, 11]  # in cross attention, where the queries are OFFSETS
SMALL_D, KDIM, VDIM = 4, 3, 5
KEY_COUNTS = [2, 2, 4]  # how many keys of a segment are not padding


def multihead_case(name, layer, widths, cross=False, together=False, hidden=None, counts=None, bias=False,
                   causal=False):
    """Runs a MultiheadAttention one segment at a time. hidden: attn_mask for a pair, true = hidden; counts:
    keys behind them are hidden by key_padding_mask; bias: a float attn_mask for each head, with a gradient, which
    hides other pairs in each head by -inf."""
    offsets = KEY_OFFSETS if cross else OFFSETS
    rows = (ROWS, offsets[-1], offsets[-1])
    inputs = [numbers((n, d), 3 + i).requires_grad_() for i, (n, d) in enumerate(zip(rows, widths))]
    if together:
        inputs = inputs[:1] if not cross else inputs[:2]
    q, k, v = (inputs * 3)[:3] if len(inputs) == 1 else (inputs + inputs[-1:])[:3]
    pairs = sum((b - a) * (d - c) for a, b, c, d in zip(OFFSETS, OFFSETS[1:], offsets, offsets[1:]))
    added = bias_numbers(offsets, pairs).requires_grad_() if bias else None
    outputs, weights, at = [], [], 0
    for s, (a, b, c, d) in enumerate(zip(OFFSETS, OFFSETS[1:], offsets, offsets[1:])):
        mask = padding = None
        if hidden is not None or causal:
            mask = torch.tensor([[causal and j > i or hidden is not None and hidden(s, i, j) for j in range(d - c)]
                                 for i in range(b - a)])
        if counts is not None:
            padding = torch.tensor([[j >= counts[s] for j in range(d - c)]])
        if bias:
            mask = added[:, at:at + (b - a) * (d - c)].reshape(HEADS, b - a, d - c)
        for average in (True, False):
            y, w = layer(q[None, a:b], k[None, c:d], v[None, c:d], attn_mask=mask, key_padding_mask=padding,
                         average_attn_weights=average)
            weights.append(w.flatten())
        outputs.append(y[0])
        at += (b - a) * (d - c)
    y = torch.cat(outputs)
    (y * numbers(y.shape, 7)).sum().backward()
    print(f"\nstatic const layer_param {name}_params[] = {{")
    for n, p in layer.named_parameters():
        print('    {"%s", {%d, {%s}}, %s},' % (n, p.dim(), ", ".join(map(str, p.shape)), array(p.grad)))
    print("    {NULL, {0, {0}}, NULL}};")
    gradients = [array(x.grad) for x in inputs] + ["NULL"] * (3 - len(inputs))
    dbias = array(added.grad) if bias else "NULL"
    print(f"static const heads_case {name}_case = {{{y.numel()}, {array(y)}, {{{', '.join(gradients)}}}, {dbias}, "
          f"{array(torch.cat(weights))}, {name}_params}};")


def bias_numbers(offsets, pairs):
    added, at = numbers((HEADS, pairs), 11), 0
    for s, (a, b, c, d) in enumerate(zip(OFFSETS, OFFSETS[1:], offsets, offsets[1:])):
        for i in range(b - a):
            for j in range(d - c):
                for h in range(HEADS):
                    if scattered(s, i, j + h):
                        added[h, at] = -math.inf
                at += 1
    return added


def attention(**options):
    layer = fill(nn.MultiheadAttention(SMALL_D, HEADS, batch_first=True, **options))
    with torch.no_grad():  # larger scores, so that weights differ
        for name, p in layer.named_parameters():
            p.mul_(4)
    return layer


def scattered(s, i, j):
    return (5 * s + 3 * i + 2 * j) % 4 == 0


def multiheads():
    own, other = (SMALL_D,) * 3, (SMALL_D, KDIM, VDIM)
    wide = dict(kdim=KDIM, vdim=VDIM)
    multihead_case("cross", attention(), own, cross=True)
    multihead_case("memory", attention(), own, cross=True, together=True)
    multihead_case("dims", attention(**wide), other, cross=True)
    multihead_case("dims_no_bias", attention(bias=False, **wide), other, cross=True, hidden=scattered)
    multihead_case("bias_kv", attention(add_bias_kv=True), own, together=True)
    multihead_case("zero_attn", attention(add_zero_attn=True), own, together=True, causal=True)
    both = dict(add_bias_kv=True, add_zero_attn=True)
    multihead_case("both", attention(bias=False, **both), own, together=True, hidden=scattered, causal=True)
    multihead_case("both_dims", attention(**both, **wide), other, cross=True, counts=KEY_COUNTS)
    multihead_case("both_hidden", attention(**both), own, cross=True, hidden=scattered, counts=KEY_COUNTS)
    multihead_case("both_bias", attention(**both), own, cross=True, together=True, bias=True)
    multihead_case("bias", attention(), own, together=True, bias=True)


def state_dict(folder):
    """A state dict as PyTorch makes it, and what its layer gives; rows as in the dims case."""
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(SMALL_D, HEADS, batch_first=True, kdim=KDIM, vdim=VDIM, add_bias_kv=True)
    with torch.no_grad():
        layer.in_proj_bias.copy_(numbers(layer.in_proj_bias.shape, 1))
    q, k, v = (numbers((n, d), 3 + i) for i, (n, d) in enumerate(((ROWS, SMALL_D), (11, KDIM), (11, VDIM))))
    y = [layer(q[None, a:b], k[None, c:d], v[None, c:d])[0][0]
         for a, b, c, d in zip(OFFSETS, OFFSETS[1:], KEY_OFFSETS, KEY_OFFSETS[1:])]
    arrays = {name: p.numpy() for name, p in layer.state_dict().items()}
    np.savez_compressed(folder / "multihead.npz", **arrays, **{"meta.json": b"{}"})
    print(f"\nstatic const double loaded_y[] = {array(torch.cat(y)).replace('(const double[])', '')};")


# ---- files ------------------------------------------------------------------------------------------------


def begin():
    print("/* Written by tools/make_layer_fixtures.py with PyTorch %s: do not edit. */" % torch.__version__.split("+")[0])
    print("/* clang-format off */")


def constants(*named):
    for values, name in named:
        print(f"static const {name}[] = {{{', '.join(map(str, values))}}};")


def write_layers():
    begin()
    constants((OFFSETS, "size_t layer_offsets"), (IDS, "int32_t layer_ids"),
              (BAG_OFFSETS, "size_t layer_bag_offsets"), (LABELS, "int32_t layer_labels"))
    print("enum { LAYER_ROWS = %d, LAYER_D = %d, LAYER_HEADS = %d, LAYER_HIDDEN = %d };" % (ROWS, D, HEADS, HIDDEN))
    for write in (linear, embedding, norm, positions, multihead, block, cross_entropy):
        write()


def write_multihead(folder):
    begin()
    constants((OFFSETS, "size_t query_offsets"), (KEY_OFFSETS, "size_t key_offsets"),
              (KEY_COUNTS, "size_t key_counts"))
    print("enum { QUERIES = %d, KEYS = %d, D = %d, KDIM = %d, VDIM = %d, HEADS = %d };"
          % (ROWS, KEY_OFFSETS[-1], SMALL_D, KDIM, VDIM, HEADS))
    multiheads()
    state_dict(folder)


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, write in (("layers.h", write_layers), ("multihead.h", lambda: write_multihead(folder))):
        with open(folder / name, "w") as out, contextlib.redirect_stdout(out):
            write()


if __name__ == "__main__":
    main()
