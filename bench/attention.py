"""Compares build/bench/attention with PyTorch, case by case: python3 bench/attention.py [--case NAME] [--pairs N].

Both sides make the same numbers and must agree on loss, output and gradient (not with dropout) before anything
is timed. Then fresh processes take turns, ours and PyTorch's, so that what else the machine does meets both; a
ratio is the median over the pairs. --curve prints ours alone against size: time, and the memory of a step.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PYTHON = os.environ.get("PYTHON", sys.executable)
# PyTorch's forms of a case, the best of which counts.
FORMS = {
    "causal": ["sdpa"],
    "window": ["blocked", "dense"],
    "ragged": ["padded", "nested"],
    "dropout": ["sdpa"],
    "bias": ["sdpa"],
    "graph": ["gather"],
}
CURVES = {
    "every": [1024, 2048, 4096, 8192, 16384],
    "window": [1024, 2048, 4096, 8192, 16384],
    "graph": [1000, 3000, 10000, 30000, 100000],
    "edges": [1000, 3000, 10000, 30000, 100000],
}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder that make built in")
    p.add_argument("--case", choices=FORMS, action="append", help="default: all")
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--seconds", type=float, default=2, help="of timed steps in each process")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--curve", action="store_true", help="ours alone, against size")
    p.add_argument("--measure", metavar="FORM", help="PyTorch's side alone, as a JSON line")
    return p.parse_args()


def numbers(torch, step, *shape):
    """The numbers of bench/attention.c, as rows [rows, heads * width]."""
    count = 1
    for n in shape:
        count *= n
    place = torch.arange(count, dtype=torch.int64)
    return (2.0 * (place * step % 10007).double() / 10007 - 1).float().reshape(shape)


def heads(x, samples, h, d):
    return x.reshape(samples, -1, h, d).transpose(1, 2)


def sdpa_case(torch, case):
    f = torch.nn.functional
    b, t = (1, 2048) if case == "bias" else (4, 1024)
    h, d = 8, 64
    q, k, v, dy = (numbers(torch, s, b * t, h * d) for s in (7919, 5039, 3571, 6151))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    bias = numbers(torch, 4421, h, t, t).requires_grad_() if case == "bias" else None
    leaves = [q, k, v] + ([bias] if bias is not None else [])
    p = 0.1 if case == "dropout" else 0.0

    def attend():
        y = f.scaled_dot_product_attention(*(heads(x, b, h, d) for x in (q, k, v)), attn_mask=bias,
                                           dropout_p=p, is_causal=case != "bias")
        return y.transpose(1, 2).reshape(b * t, h * d)

    return attend, leaves, dy


def window_case(torch, form):
    f = torch.nn.functional
    t, h, d, w = 8192, 4, 32, 128
    q, k, v, dy = (numbers(torch, s, t, h * d) for s in (7919, 5039, 3571, 6151))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    if form == "dense":
        i = torch.arange(t)
        mask = (i[:, None] - i[None]).abs() <= w
        attend = lambda: f.scaled_dot_product_attention(
            *(heads(x, 1, h, d) for x in (q, k, v)), attn_mask=mask).transpose(1, 2).reshape(t, h * d)
        return attend, [q, k, v], dy
    n = t // w
    distance = torch.arange(3 * w)[None] - w - torch.arange(w)[:, None]
    place = torch.arange(n)[:, None] * w - w + torch.arange(3 * w)[None]
    mask = (distance.abs() <= w)[None] & ((place >= 0) & (place < t))[:, None, :]

    def neighbours(x):
        x = f.pad(heads(x, 1, h, d), (0, 0, w, w)).reshape(1, h, n + 2, w, d)
        return torch.cat([x[:, :, :-2], x[:, :, 1:-1], x[:, :, 2:]], dim=3)

    def attend():
        s = heads(q, 1, h, d).reshape(1, h, n, w, d) @ neighbours(k).transpose(-2, -1) * d ** -0.5
        p = s.masked_fill(~mask, float("-inf")).softmax(-1)
        return (p @ neighbours(v)).reshape(1, h, t, d).transpose(1, 2).reshape(t, h * d)

    return attend, [q, k, v], dy


def ragged_case(torch, form):
    f = torch.nn.functional
    h, d = 8, 64
    lengths = [8 + s * 211 % 505 for s in range(32)]
    rows, longest = sum(lengths), max(lengths)
    q, k, v, dy = (numbers(torch, s, rows, h * d) for s in (7919, 5039, 3571, 6151))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    if form == "nested":
        offsets = torch.tensor([0] + lengths).cumsum(0)
        nested = lambda x: torch.nested.nested_tensor_from_jagged(
            x.reshape(rows, h, d), offsets).transpose(1, 2)
        attend = lambda: f.scaled_dot_product_attention(
            nested(q), nested(k), nested(v)).transpose(1, 2).values().reshape(rows, h * d)
        return attend, [q, k, v], dy
    real = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    mask = real[:, None, None, :]

    def padded(x):
        y = x.new_zeros(len(lengths), longest, h * d)
        y[real] = x
        return heads(y, len(lengths), h, d)

    def attend():
        y = f.scaled_dot_product_attention(padded(q), padded(k), padded(v), attn_mask=mask)
        return y.transpose(1, 2).reshape(len(lengths), longest, h * d)[real]

    return attend, [q, k, v], dy


def graph_case(torch):
    f = torch.nn.functional
    n, h, d = 10000, 8, 8
    i, e = torch.arange(n)[:, None], torch.arange(10)[None]
    target, source = torch.unique(i * n + (i * 7919 + e * 4999 + i % 97 * e * e) % n).div(
        n, rounding_mode="floor"), torch.unique(i * n + (i * 7919 + e * 4999 + i % 97 * e * e) % n) % n
    x, dy = numbers(torch, 7919, n, h * d).requires_grad_(), numbers(torch, 6151, n, h * d)
    left, right = (numbers(torch, s, h, d).requires_grad_() for s in (2003, 1009))
    index = target[:, None].expand(-1, h)

    def attend():
        nodes = x.reshape(n, h, d)
        of_source, of_target = (nodes * left).sum(-1), (nodes * right).sum(-1)
        s = f.leaky_relu(of_source.index_select(0, source) + of_target.index_select(0, target), 0.2)
        most = torch.full((n, h), -1e30).scatter_reduce(0, index, s.detach(), "amax")
        w = (s - most.index_select(0, target)).exp()
        p = w / torch.zeros(n, h).index_add(0, target, w).index_select(0, target)
        y = torch.zeros(n, h, d).index_add(0, target, p[:, :, None] * nodes.index_select(0, source))
        return y.reshape(n, h * d)

    return attend, [x, left, right], dy


def measure(o):
    """PyTorch's process."""
    import torch
    torch.set_num_threads(o.threads[0])
    case = o.case[0]
    attend, leaves, dy = (window_case(torch, o.measure) if case == "window" else
                          ragged_case(torch, o.measure) if case == "ragged" else
                          graph_case(torch) if case == "graph" else sdpa_case(torch, case))
    ms, start = [], 0
    while len(ms) < 4 or time.perf_counter() - start < o.seconds:
        if len(ms) == 1:
            start = time.perf_counter()
        for x in leaves:
            x.grad = None
        begun = time.perf_counter()
        y = attend()
        y.backward(dy)
        ms.append(1e3 * (time.perf_counter() - begun))
    ms = sorted(ms[1:])
    norm = lambda x: float(x.double().norm())
    print(json.dumps({
        "name": case, "form": o.measure, "threads": o.threads[0], "ms_median": ms[len(ms) // 2],
        "ms_min": ms[0], "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "loss": float((y.detach().double() * dy.double()).sum()), "y": norm(y), "dq": norm(leaves[0].grad),
        "torch": torch.__version__}))


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def ours(o, case, threads, size=0, seconds=None):
    return run([f"{o.build}/bench/attention", "--case", case, "--threads", str(threads), "--size",
                str(size), "--seconds", str(seconds or o.seconds)])


def theirs(o, case, form, threads, seconds=None):
    return run([PYTHON, __file__, "--case", case, "--measure", form, "--threads", str(threads),
                "--seconds", str(seconds or o.seconds)])


def agree(case, mine, other):
    """Whether loss, output and gradient are the same, as far as single precision tells."""
    if case == "dropout":
        return True
    scale = {"loss": other["y"] + abs(other["loss"]), "y": other["y"], "dq": other["dq"]}
    return all(abs(mine[key] - other[key]) <= 1e-4 * scale[key] for key in scale)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(o, case, form):
    mine, other = ours(o, case, 1, seconds=0.1), theirs(o, case, form, 1, seconds=0.1)
    if "error" in mine or "error" in other:
        return print(f"| {case}, {form} | not run: {mine.get('error') or other['error']} |")
    if not agree(case, mine, other):
        sys.exit(f"attention.py: {case}: the sides differ: {mine} {other}")
    for threads in o.threads:
        a, b = [], []
        for _ in range(o.pairs):
            a.append(ours(o, case, threads))
            b.append(theirs(o, case, form, threads))
        ratios = [y["ms_median"] / x["ms_median"] for x, y in zip(a, b)]
        ms = [statistics.median(r["ms_median"] for r in side) for side in (a, b)]
        mb = [max(r["peak_rss_mb"] for r in side) for side in (a, b)]
        print(f"| {case}, {form} | {threads} | {ms[0]:.2f} | {ms[1]:.2f} | {spread(ratios)} | {mb[0]:.0f} | "
              f"{mb[1]:.0f} |", flush=True)
    return None


def curves(o):
    print("| case | rows | pairs | ms, 1 thread | ms, 2 threads | MB of the step | MB of the process |")
    print("|---" * 7 + "|")
    for case, sizes in CURVES.items():
        for size in sizes:
            one, two = (ours(o, case, threads, size, 1) for threads in (1, 2))
            if "error" in one or "error" in two:
                sys.exit(f"attention.py: {case} of {size}: {one.get('error') or two.get('error')}")
            print(f"| {case} | {size} | {one['pairs']} | {one['ms_median']:.1f} | {two['ms_median']:.1f} | "
                  f"{two['tape_mb']:.1f} | {two['peak_rss_mb']:.0f} |", flush=True)


def main():
    o = parse()
    if o.measure:
        return measure(o)
    if o.curve:
        return curves(o)
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        return print(f"attention.py: skipped: {PYTHON} has no torch (PYTHON names one that has)")
    print("Forward and backward, milliseconds: medians of fresh processes in turn; how many times ours PyTorch "
          "takes.\n")
    print("| case, PyTorch's form | threads | ours | PyTorch | ratio | our MB | their MB |")
    print("|---" * 7 + "|")
    for case in o.case or FORMS:
        for form in FORMS[case]:
            compare(o, case, form)
    return None


if __name__ == "__main__":
    main()
