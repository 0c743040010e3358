#!/usr/bin/env python3
"""Writes what graph layers give in double, with all gradients: tests/data/graph.h.

The layers are written out here from their papers' formulas, one target at a time, with the parameter names of
PyTorch Geometric: GAT (Velickovic et al., 2018), GATv2 (Brody, Alon, Yahav, 2022), the transformer's layer (Shi
et al., 2021). Inputs and weights are those of make_layer_fixtures.py, the weights times 4.

    python3 tools/make_graph_fixtures.py tests/data     (PyTorch 2.13)
"""
import contextlib
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

from make_layer_fixtures import array, fill, numbers

IN, OUT, HEADS, TARGET, EDGE = 3, 2, 2, 4, 2
NODES, TARGETS = 6, 5
# the sources of each target
ONE_KIND = [[0, 2, 3], [1], [], [0, 1, 2, 3, 4, 5], [0, 4], [3, 5]]
TWO_KINDS = [[5], [0, 1, 3], [], [2, 3, 4, 5], [0, 5]]


def vectors():
    return nn.Parameter(torch.zeros(1, HEADS, OUT))


class GraphLayer(nn.Module):
    """What the three share; a target without edges gets zeros from attention."""

    def __init__(self, target=0, edge=0, mean=False):
        super().__init__()
        self.target, self.edge, self.mean = target or IN, edge, mean
        self.columns = OUT if mean else HEADS * OUT

    def ends(self, residual, bias):
        self.res = nn.Linear(self.target, self.columns, bias=False) if residual else None
        self.bias = nn.Parameter(torch.zeros(self.columns)) if bias else None

    def ended(self, y, targets):
        if self.res is not None:
            y = y + self.res(targets)
        return y if self.bias is None else y + self.bias

    def attend(self, sources_of, score, message):
        """score and message of (target, its sources, rows of their edges) -> [sources, heads(, out)]."""
        rows, at = [], 0
        for i, js in enumerate(sources_of):
            edges = list(range(at, at + len(js)))
            at += len(js)
            if not js:
                rows.append(torch.zeros(HEADS, OUT))
                continue
            weights = torch.softmax(score(i, js, edges), 0)
            rows.append((weights[:, :, None] * message(i, js, edges)).sum(0))
        y = torch.stack(rows)
        return y.mean(1) if self.mean else y.flatten(1)


class GAT(GraphLayer):
    def __init__(self, two=False, slope=0.2, residual=False, bias=True, **options):
        super().__init__(**options)
        self.slope = slope
        if two:
            self.lin_src = nn.Linear(IN, HEADS * OUT, bias=False)
            self.lin_dst = nn.Linear(self.target, HEADS * OUT, bias=False)
        else:
            self.lin = nn.Linear(IN, HEADS * OUT, bias=False)
        self.att_src, self.att_dst = vectors(), vectors()
        if self.edge:
            self.lin_edge, self.att_edge = nn.Linear(self.edge, HEADS * OUT, bias=False), vectors()
        self.ends(residual, bias)

    def forward(self, sources, targets, edges, sources_of):
        of_sources, of_targets = (self.lin_src, self.lin_dst) if hasattr(self, "lin_src") else (self.lin, self.lin)
        k = of_sources(sources).view(-1, HEADS, OUT)
        q = of_targets(targets).view(-1, HEADS, OUT)

        def score(i, js, es):
            s = (k[js] * self.att_src).sum(-1) + (q[i] * self.att_dst).sum(-1)
            if self.edge:
                s = s + (self.lin_edge(edges[es]).view(-1, HEADS, OUT) * self.att_edge).sum(-1)
            return F.leaky_relu(s, self.slope)

        return self.ended(self.attend(sources_of, score, lambda i, js, es: k[js]), targets)


class GATv2(GraphLayer):
    def __init__(self, shared=False, slope=0.2, residual=False, bias=True, **options):
        super().__init__(**options)
        self.slope = slope
        self.lin_l = nn.Linear(IN, HEADS * OUT, bias=bias)
        self.lin_r = self.lin_l if shared else nn.Linear(self.target, HEADS * OUT, bias=bias)
        self.att = vectors()
        if self.edge:
            self.lin_edge = nn.Linear(self.edge, HEADS * OUT, bias=False)
        self.ends(residual, bias)

    def forward(self, sources, targets, edges, sources_of):
        k = self.lin_l(sources).view(-1, HEADS, OUT)
        q = self.lin_r(targets).view(-1, HEADS, OUT)

        def score(i, js, es):
            s = q[i] + k[js]
            if self.edge:
                s = s + self.lin_edge(edges[es]).view(-1, HEADS, OUT)
            return (F.leaky_relu(s, self.slope) * self.att).sum(-1)

        return self.ended(self.attend(sources_of, score, lambda i, js, es: k[js]), targets)


class TransformerConv(GraphLayer):
    def __init__(self, beta=False, root=True, bias=True, **options):
        super().__init__(**options)
        self.beta, self.root = beta, root
        self.lin_key, self.lin_value = nn.Linear(IN, HEADS * OUT), nn.Linear(IN, HEADS * OUT)
        self.lin_query = nn.Linear(self.target, HEADS * OUT)
        if self.edge:
            self.lin_edge = nn.Linear(self.edge, HEADS * OUT, bias=False)
        self.lin_skip = nn.Linear(self.target, self.columns, bias=bias)
        if beta:
            self.lin_beta = nn.Linear(3 * self.columns, 1, bias=False)

    def forward(self, sources, targets, edges, sources_of):
        q, k, v = (m(x).view(-1, HEADS, OUT) for m, x in
                   ((self.lin_query, targets), (self.lin_key, sources), (self.lin_value, sources)))

        def with_edges(rows, es):
            return rows + self.lin_edge(edges[es]).view(-1, HEADS, OUT) if self.edge else rows

        y = self.attend(sources_of, lambda i, js, es: (q[i] * with_edges(k[js], es)).sum(-1) / math.sqrt(OUT),
                        lambda i, js, es: with_edges(v[js], es))
        if not self.root:
            return y
        root = self.lin_skip(targets)
        if not self.beta:
            return y + root
        gate = torch.sigmoid(self.lin_beta(torch.cat([y, root, y - root], -1)))
        return gate * root + (1 - gate) * y


def case(name, layer, two=False):
    """Output, gradients of sources, targets (when they are other nodes) and edges, and of all parameters."""
    fill(layer)
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(4)
    sources_of = TWO_KINDS if two else ONE_KIND
    sources = numbers((NODES, IN), 3).requires_grad_()
    targets = numbers((TARGETS, layer.target), 4).requires_grad_() if two else sources
    edges = numbers((sum(map(len, sources_of)), EDGE), 5).requires_grad_() if layer.edge else None
    y = layer(sources, targets, edges, sources_of)
    (y * numbers(y.shape, 7)).sum().backward()
    print(f"\nstatic const layer_param {name}_params[] = {{")
    for n, p in layer.named_parameters():
        gradient = "NULL" if p.grad is None else array(p.grad)
        print('    {"%s", {%d, {%s}}, %s},' % (n, p.dim(), ", ".join(map(str, p.shape)), gradient))
    print("    {NULL, {0, {0}}, NULL}};")
    gradients = (array(sources.grad), array(targets.grad) if two else "NULL",
                 "NULL" if edges is None else array(edges.grad))
    print(f"static const graph_case {name}_case = {{{y.numel()}, {array(y)}, {{{', '.join(gradients)}}}, "
          f"{name}_params}};")


def graph(name, sources_of):
    offsets = [0]
    for js in sources_of:
        offsets.append(offsets[-1] + len(js))
    print("static const size_t %s_offsets[] = {%s};" % (name, ", ".join(map(str, offsets))))
    print("static const int32_t %s_sources[] = {%s};" % (name, ", ".join(str(j) for js in sources_of for j in js)))


def write():
    print("/* Written by tools/make_graph_fixtures.py with PyTorch %s: do not edit. */" % torch.__version__.split("+")[0])
    print("/* clang-format off */")
    print("enum { IN_WIDTH = %d, OUT_WIDTH = %d, HEADS = %d, TARGET_WIDTH = %d, EDGE_WIDTH = %d, NODES = %d, TARGETS = %d };"
          % (IN, OUT, HEADS, TARGET, EDGE, NODES, TARGETS))
    graph("one_kind", ONE_KIND)
    graph("two_kinds", TWO_KINDS)
    case("gat", GAT())
    case("gat_edges", GAT(edge=EDGE, bias=False, slope=0.0))
    case("gat_mean", GAT(mean=True, residual=True, slope=0.3))
    case("gat_alike", GAT(edge=EDGE), two=True)
    case("gat_two", GAT(two=True, target=TARGET, edge=EDGE, mean=True, residual=True), two=True)
    case("gatv2", GATv2())
    case("gatv2_edges", GATv2(edge=EDGE, bias=False, slope=0.0))
    case("gatv2_shared", GATv2(shared=True, mean=True, residual=True, slope=0.3))
    case("gatv2_shared_two", GATv2(shared=True), two=True)
    case("gatv2_two", GATv2(target=TARGET, edge=EDGE, mean=True, residual=True), two=True)
    case("transformer", TransformerConv())
    case("transformer_edges", TransformerConv(edge=EDGE, mean=True, bias=False))
    case("transformer_beta", TransformerConv(beta=True))
    case("transformer_two", TransformerConv(target=TARGET, edge=EDGE, beta=True, mean=True), two=True)
    case("transformer_no_root", TransformerConv(edge=EDGE, root=False))


if __name__ == "__main__":
    with open(pathlib.Path(sys.argv[1]) / "graph.h", "w") as out, contextlib.redirect_stdout(out):
        write()
