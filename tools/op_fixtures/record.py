"""How a case is recorded, and where its numbers come from."""

import io
import json
import math
import os
import random
import sys
import zipfile

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

generator = random.Random(20)
families = {}
now = None


def family(name):
    global now
    now = families.setdefault(name, {"cases": [], "inputs": [], "outputs": []})


def rand(*shape, low=-2.0, high=2.0, gap=0.0):
    """Multiples of 1/64 in [low, high], no nearer to 0 than gap."""
    numbers = []
    while len(numbers) < math.prod(shape):
        x = generator.randint(math.ceil(low * 64), math.floor(high * 64)) / 64
        if abs(x) >= gap:
            numbers.append(x)
    return torch.tensor(numbers).reshape(shape)


def distinct(*shape, low=-3.0, high=3.0, gap=0.0):
    """The same without two equal numbers."""
    grid = [
        k / 64 for k in range(math.ceil(low * 64), math.floor(high * 64) + 1) if abs(k / 64) >= gap
    ]
    return torch.tensor(generator.sample(grid, math.prod(shape))).reshape(shape)


def ids(count, below):
    return [generator.randrange(below) for _ in range(count)]


def truths(*shape):
    return torch.tensor([generator.randint(0, 1) for _ in range(math.prod(shape))]).reshape(shape)


def pieces(x, offsets):
    return [x[a:b] for a, b in zip(offsets, offsets[1:])]


def case(op, fn, *inputs, grad=None, count=None, **options):
    """One case. grad says which inputs have a gradient to compare (default: all); options that
    are None are left out."""
    grad = [True] * len(inputs) if grad is None else grad
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = fn(*leaves)
    if y.requires_grad and any(grad):
        c = torch.tensor([((37 * i + 11) % 61 - 30) / 32 for i in range(y.numel())])
        y.backward(c.reshape(y.shape))
    else:
        grad = [False] * len(inputs)
    assert y.numel() <= 40 and all(x.numel() <= 40 for x in inputs), (op, y.shape)
    entry = {"op": op, "in": [list(x.shape) for x in inputs], "out": list(y.shape)}
    if not all(grad) or not inputs:
        entry["grad"] = [int(g) for g in grad]
    if count is not None:
        entry["count"] = float(count)
    entry.update({k: v for k, v in options.items() if v is not None})
    now["cases"].append(entry)
    now["inputs"] += [x.detach().flatten() for x in inputs]
    now["outputs"].append(y.detach().flatten().to(torch.float64))
    for x, g in zip(leaves, grad):
        if g:
            now["outputs"].append((torch.zeros_like(x) if x.grad is None else x.grad).flatten())


def values(op, fn, *inputs, **options):
    """A case without gradients."""
    case(op, fn, *inputs, grad=[False] * len(inputs), **options)


def write(folder):
    for name, f in families.items():
        path = os.path.join(folder, name + ".npz")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in f["cases"])
            members = {"cases.json": ("[" + lines + "]\n").encode()}
            for key in ("inputs", "outputs"):
                out = io.BytesIO()
                np.lib.format.write_array(out, torch.cat(f[key]).numpy().astype("<f8"), (1, 0))
                members[key + ".npy"] = out.getvalue()
            for member, data in members.items():
                info = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(info, data)
    total = sum(len(f["cases"]) for f in families.values())
    size = sum(os.path.getsize(os.path.join(folder, n + ".npz")) for n in families)
    print(f"{total} cases, {size} bytes, PyTorch {torch.__version__}", file=sys.stderr)
