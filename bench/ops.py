"""Compares build/bench/ops with PyTorch, op by op: python3 bench/ops.py [--only OP] [--rounds N].

Fresh processes take turns, ours and PyTorch's, so that what else the machine does meets both; the figures
are medians over the rounds of each process's best times. PyTorch's backward is that of torch.autograd.grad
from a ready gradient. An op is compared when both sides have it under one name.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PYTHON = os.environ.get("PYTHON", sys.executable)
ROWS = {"": (16384, 1024), "small_": (16, 1024)}  # as in bench/ops.c


def calls(torch):
    """PyTorch's side of the table in bench/ops.c: the shape of b beside a [n, d], and the call."""
    f = torch.nn.functional
    full, row, column, number = (lambda n, d: (n, d)), (lambda n, d: (d,)), (lambda n, d: (n, 1)), (
        lambda n, d: ())
    return {
        "add": (full, lambda a, b: a + b),
        "add_row": (row, lambda a, b: a + b),
        "add_column": (column, lambda a, b: a + b),
        "mul": (full, lambda a, b: a * b),
        "mul_row": (row, lambda a, b: a * b),
        "mul_column": (column, lambda a, b: a * b),
        "mul_number": (number, lambda a, b: a * b),
        "div": (full, lambda a, b: a / b),
        "power": (full, lambda a, b: a ** b),
        "maximum": (full, torch.maximum),
        "lerp": (full, lambda a, b: torch.lerp(a, b, a)),
        "add_many": (full, lambda a, b: a + b + a),
        "scale": (None, lambda a: 3 * a),
        "pow_2": (None, lambda a: a ** 2),
        "pow_1_7": (None, lambda a: a ** 1.7),
        "clamp": (None, lambda a: a.clamp(0.2, 0.6)),
        "abs": (None, torch.abs),
        "sqrt": (None, torch.sqrt),
        "exp": (None, torch.exp),
        "log": (None, torch.log),
        "sin": (None, torch.sin),
        "erf": (None, torch.erf),
        "atan": (None, torch.atan),
        "relu": (None, torch.relu),
        "elu": (None, f.elu),
        "gelu": (None, f.gelu),
        "gelu_tanh": (None, lambda a: f.gelu(a, approximate="tanh")),
        "silu": (None, f.silu),
        "mish": (None, f.mish),
        "softplus": (None, f.softplus),
        "sigmoid": (None, torch.sigmoid),
        "tanh": (None, torch.tanh),
        "hardswish": (None, f.hardswish),
        "swiglu": (None, lambda a: f.silu(a[:, :512]) * a[:, 512:]),
        "sum": (None, torch.sum),
        "sum_rows": (None, lambda a: a.sum(-1)),
        "sum_columns": (None, lambda a: a.sum(0)),
        "mean": (None, lambda a: a.mean(-1)),
        "prod": (None, lambda a: a.prod(-1)),
        "max": (None, lambda a: a.amax(-1)),
        "variance": (None, lambda a: a.var(-1)),
        "logsumexp": (None, lambda a: a.logsumexp(-1)),
        "norm": (None, lambda a: torch.linalg.vector_norm(a, 2, -1)),
        "cumsum": (None, lambda a: a.cumsum(-1)),
        "softmax": (None, lambda a: a.softmax(-1)),
        "log_softmax": (None, lambda a: a.log_softmax(-1)),
        "layer_norm": (row, lambda a, b: f.layer_norm(a, a.shape[-1:], b, None)),
        "rms_norm": (row, lambda a, b: f.rms_norm(a, a.shape[-1:], b)),
    }


def measure(o):
    """PyTorch's process: a JSON line an op."""
    import torch
    torch.set_num_threads(o.threads)
    for name, (second, call) in calls(torch).items():
        if o.only not in (None, name):
            continue
        found = {"op": name, "threads": o.threads}
        for size, (rows, width) in ROWS.items():
            place = torch.arange(rows * width, dtype=torch.int64)
            inputs = [(0.1 + 0.8 * (place * 7919 % 10007) / 10007).float().reshape(rows, width)]
            if second is not None:
                shape = second(rows, width)
                count = 1
                for n in shape:
                    count *= n
                inputs.append((0.5 + (place[:count] * 5039 % 10009) / 10009).float().reshape(shape))
            inputs = [x.requires_grad_() for x in inputs]
            best = {"forward": 1e9, "backward": 1e9}
            dy = None
            for _ in range(o.repeats if size == "" else 50 * o.repeats):
                start = time.perf_counter()
                y = call(*inputs)
                middle = time.perf_counter()
                best["forward"] = min(best["forward"], middle - start)
                dy = torch.full_like(y, 0.5) if dy is None else dy
                start = time.perf_counter()
                torch.autograd.grad(y, inputs, dy)
                best["backward"] = min(best["backward"], time.perf_counter() - start)
            for way, seconds in best.items():
                found[f"{size}{way}_ns"] = 1e9 * seconds / (rows * width)
        print(json.dumps(found), flush=True)


def lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {row["op"]: row for row in map(json.loads, done.stdout.splitlines())}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder that make built in")
    p.add_argument("--only", metavar="OP")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeats", type=int, default=5, help="in each process")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--measure", action="store_true", help="PyTorch's side alone, as JSON lines")
    o = p.parse_args()
    if o.measure:
        return measure(o)
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        return print(f"ops.py: skipped: {PYTHON} has no torch (PYTHON names one that has)")
    same = ["--threads", str(o.threads), "--repeats", str(o.repeats)]
    same += ["--only", o.only] if o.only else []
    ours, theirs = [], []
    for _ in range(o.rounds):
        ours.append(lines([f"{o.build}/bench/ops", "--json", *same]))
        theirs.append(lines([PYTHON, __file__, "--measure", *same]))
    kinds = ["forward_ns", "backward_ns", "small_forward_ns", "small_backward_ns"]
    print(f"Nanoseconds a number, {o.threads} threads: ours, PyTorch's, how many times ours.\n")
    print("| op | forward | | | backward | | | forward, in cache | | | backward, in cache | | |")
    print("|---" * 13 + "|")
    for op in ours[0]:
        if op not in theirs[0]:
            continue
        cells = []
        for kind in kinds:
            a, b = (statistics.median(r[op][kind] for r in side) for side in (ours, theirs))
            cells += [f"{a:.3f}", f"{b:.3f}", f"{b / a:.2f}"]
        print(f"| {op} | " + " | ".join(cells) + " |")
    return None


if __name__ == "__main__":
    main()
