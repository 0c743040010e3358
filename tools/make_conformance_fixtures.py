#!/usr/bin/env python3
"""Writes tests/fixtures/conformance: tiny cases, worked out by hand, for the program build/bin/conformance.

    python3 tools/make_conformance_fixtures.py tests/fixtures/conformance     (numpy)

Below right/ all pass, below wrong/ all fail, below unknown/ all are skipped.
"""

import json
import os
import sys

import numpy as np

folder = sys.argv[1]


def f4(*numbers):
    return np.array(numbers, "<f4")


def tensor(path, file, name, x, dtype=None):
    """Writes x and gives its entry in case.json. bfloat16 is given as its bits."""
    if x is None:
        return {"name": "", "absent": True}
    np.save(os.path.join(path, file), x)
    return {"name": name, "file": file, "dtype": dtype or x.dtype.name, "shape": list(x.shape)}


def case(name, op, inputs, outputs, attributes=None, opset=13, dtype=None, **more):
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    ins = [tensor(path, f"in_{i}.npy", f"x{i}", x, dtype) for i, x in enumerate(inputs)]
    outs = [tensor(path, f"out_{i}.npy", f"y{i}", x, dtype) for i, x in enumerate(outputs)]
    entry = {"name": os.path.basename(name), "op": op, "domain": "", "opset": opset}
    entry.update({"attributes": attributes or {}, "inputs": ins, "outputs": outs})
    entry.update({"atol": 1e-7, "rtol": 1e-3, **more})
    with open(os.path.join(path, "case.json"), "w") as file:
        json.dump(entry, file, indent=1)
        file.write("\n")


a, b = f4(1, 2, 3, 4, 5, 6).reshape(2, 3), f4(10, 20, 30)
total = f4(11, 22, 33, 14, 25, 36).reshape(2, 3)

case("right/add", "Add", [a, b], [total])
case("right/within_tolerance", "Add", [a, b], [total * f4(1.0009)])
case(
    "right/whole_numbers",
    "Mul",
    [np.array([3, -4], "<i4"), np.array([5, 6], "<i4")],
    [np.array([15, -24], "<i4")],
)
case(
    "right/truths",
    "And",
    [np.array([True, True, False]), np.array([True, False, False])],
    [np.array([True, False, False])],
)
case("right/halves", "Neg", [np.array([0.5, -2], "<f2")], [np.array([-0.5, 2], "<f2")])
# 1, 2 and 3 are 0x3f80, 0x4000 and 0x4040.
case(
    "right/bfloat16",
    "Add",
    [np.array([0x3F80], "<u2"), np.array([0x4000], "<u2")],
    [np.array([0x4040], "<u2")],
    dtype="bfloat16",
)
case("right/absent", "Clip", [f4(-3, 0, 3), None, f4(1).reshape(())], [f4(-3, 0, 1)])
case("right/not_a_number", "Sqrt", [f4(-1, 4, np.inf)], [f4(np.nan, 2, np.inf)])
case("right/place", "ArgMax", [a], [np.array([[2], [2]], "<i8")], {"axis": 1})
case(
    "right/two_outputs",
    "TopK",
    [f4(1, 9, 4), np.array([2], "<i8")],
    [f4(9, 4), np.array([1, 2], "<i8")],
)
nodes = [
    {"op": "Relu", "opset": 14, "attributes": {}, "inputs": ["x0"], "outputs": ["positive"]},
    {
        "op": "ReduceSum",
        "opset": 13,
        "attributes": {"keepdims": 0},
        "inputs": ["positive"],
        "outputs": ["y0"],
    },
]
case("right/graph", "graph", [f4(1, -2, 3)], [f4(4).reshape(())], nodes=nodes)
# y = a (a + b): dy/da = 2 a + b, dy/db = a.
nodes = [
    {"op": "Add", "opset": 14, "attributes": {}, "inputs": ["x0", "x1"], "outputs": ["sum"]},
    {"op": "Mul", "opset": 14, "attributes": {}, "inputs": ["sum", "x0"], "outputs": ["y0"]},
    {
        "op": "Gradient",
        "opset": 1,
        "attributes": {"xs": ["x0", "x1"], "y": "y0"},
        "inputs": ["x0", "x1"],
        "outputs": ["y1", "y2"],
    },
]
case("right/gradient", "Gradient", [f4(3), f4(4)], [f4(21), f4(10), f4(3)], nodes=nodes)

off = total.copy()
off[1, 1] += 0.1
case("wrong/number", "Add", [a, b], [off])
case(
    "wrong/whole_number",
    "Add",
    [np.array([1], "|i1"), np.array([1], "|i1")],
    [np.array([3], "|i1")],
)
case("wrong/shape", "Add", [a, b], [total.reshape(3, 2)])
case("wrong/not_a_number", "Abs", [f4(-1)], [f4(np.nan)])
case("wrong/sizes", "Add", [a, f4(1, 2)], [total])
case(
    "wrong/second_output",
    "TopK",
    [f4(1, 9, 4), np.array([2], "<i8")],
    [f4(9, 4), np.array([1, 0], "<i8")],
)
case("wrong/no_file", "Add", [a, b], [total])
os.remove(os.path.join(folder, "wrong/no_file/in_1.npy"))
os.makedirs(os.path.join(folder, "wrong/no_json"), exist_ok=True)
with open(os.path.join(folder, "wrong/no_json/case.json"), "w") as broken:
    broken.write('{"op": "Add",\n "inputs": [}\n')

case("unknown/operator", "Frobnicate", [a], [a])
case("unknown/known_to_be_missing", "Floor", [a], [a])
case(
    "unknown/attribute",
    "ScatterND",
    [f4(1, 2), np.array([[0]], "<i8"), f4(5)],
    [f4(5, 2)],
    {"reduction": "max"},
)
case("unknown/long_numbers", "Neg", [np.array([2**60], "<i8")], [np.array([-(2**60)], "<i8")])
