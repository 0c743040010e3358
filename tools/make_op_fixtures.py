#!/usr/bin/env python3
"""Writes tests/fixtures/FAMILY.npz: what PyTorch's functions give in double, with all gradients.

    python3 tools/make_op_fixtures.py tests/fixtures     (PyTorch 2.13, on a CPU)

A family's file holds cases.json and two flat arrays. A case names an op of autograd/ops.h, its
options, the shapes of its inputs and of its output. The arrays hold, case after case, the numbers
of all inputs (inputs.npy, multiples of 1/64 but for special values) and the output followed by the
gradient of each input that has one (outputs.npy). The gradients are those of sum(y * c), where
c[i] = ((37 i + 11) mod 61 - 30) / 32. No array has more than 40 numbers. What PyTorch has no
function for is composed, a segment at a time where there are segments. tests/test_torch_ops.c
reads them. The same script gives the same bytes.
"""

import sys

from op_fixtures.attention import attention
from op_fixtures.numbers import binary, elementwise, reductions
from op_fixtures.places import choosing, segments, shapes
from op_fixtures.record import write
from op_fixtures.rows import losses, norms, softmaxes
from op_fixtures.windows import convolutions, products

for make in (
    elementwise,
    binary,
    reductions,
    shapes,
    choosing,
    segments,
    softmaxes,
    norms,
    losses,
    products,
    convolutions,
    attention,
):
    make()
write(sys.argv[1])
