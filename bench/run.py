"""Compares build/bench/tagger_step with PyTorch's step on the same model: python3 bench/run.py [--pairs N].

The PyTorch side is b_tagger.py of the folder bench in $FOVEA_SHARED (default ../shared). First both
must have the same losses on the same weights, before and while they learn. Then fresh processes take
turns, ours and PyTorch's, so that what else the machine does meets both. One JSON line a row, then a table.
"""

import argparse
import json
import os
import pathlib
import platform
import runpy
import statistics
import subprocess
import sys
import tempfile

SHARED = pathlib.Path(os.environ.get("FOVEA_SHARED", "../shared")).resolve() / "bench"
THEIRS = SHARED / "b_tagger.py"
PYTHON = os.environ.get("PYTHON", sys.executable)
VARIANTS = {"eager": [], "fused AdamW": ["--variant", "fused"]}
OUR_NAMES = {
    "e.": "words.", "p.": "positions.", "nf.": "norm.", "out.": "output.",
    ".n1.": ".norm1.", ".n2.": ".norm2.", ".att.qkv.": ".self_attn.in_proj_",
    ".att.out.": ".self_attn.out_proj.", ".fc.0.": ".linear1.", ".fc.2.": ".linear2.",
}


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--seconds", type=float, default=2, help="of timed steps in each process")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--shards", type=int, default=4)
    p.add_argument("--build", default="build", help="folder that make built in")
    p.add_argument("--prepare", metavar="FILE.npz", help="only write the data and PyTorch's losses")
    return p.parse_args()


def our_name(name):
    for theirs, ours in OUR_NAMES.items():
        if theirs in name if theirs.startswith(".") else name.startswith(theirs):
            name = name.replace(theirs, ours, 1)
    return name


def their_model():
    """The names that b_tagger.py defines, without the measurement that it ends with."""
    sys.path.insert(0, str(SHARED))
    import common
    common.measure = lambda *_: None
    arguments, sys.argv = sys.argv, [str(THEIRS)]
    names = runpy.run_path(str(THEIRS))
    sys.argv = arguments
    return names


def prepare(path):
    """Writes weights, sentences and tags of the PyTorch model as a checkpoint, and prints its losses of
    eight steps. In a process of its own, since what is started from a large one counts as large."""
    import numpy as np
    import torch
    torch.set_num_threads(1)
    theirs = their_model()
    real = ~theirs["pad"].expand_as(theirs["xs"])
    meta = {"lengths": [int(n) for n in theirs["n"]] * len(theirs["xs"]),
            "ids": theirs["xs"][real].tolist(), "tags": theirs["ys"][real].tolist()}
    arrays = {our_name(k): v.numpy() for k, v in theirs["m"].state_dict().items()}
    np.savez(path, **arrays, **{"meta.json": json.dumps(meta).encode()})
    flags = torch.__config__.show().partition("CXX_FLAGS=")[2].partition(", ")[0]
    print(json.dumps({"losses": [float(theirs["step"]()) for _ in theirs["xs"]],
                      "torch": torch.__version__,
                      "torch flags": " ".join(f for f in flags.split() if f[:2] in ("-O", "-f"))}))


def run(command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def ours(o, data, threads, *more):
    return run([f"{o.build}/bench/tagger_step", "--data", data, "--threads", str(threads),
                "--shards", str(o.shards), "--seconds", str(o.seconds), *more])


def pytorch(o, threads, variant):
    return run([PYTHON, str(THEIRS), "--threads", str(threads), "--seconds", str(o.seconds),
                "--steps", "100000", *VARIANTS[variant]])


def check_losses(o, data, theirs):
    """Stops unless both sides learn the same: the losses of the first eight steps agree."""
    mine = ours(o, data, 1, "--check")
    found = {"first": mine["loss_first"] / theirs["losses"][0] - 1,
             "epoch": mine["loss_epoch"] / statistics.mean(theirs["losses"]) - 1}
    print(json.dumps({"name": "same losses", "relative difference": found,
                      "loss": mine["loss_first"]}), flush=True)
    if any(not abs(x) < 1e-5 for x in found.values()):
        sys.exit("run.py: the losses differ: nothing was measured")
    return mine["version"]


def spread(values):
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2),
            "max": round(max(values), 2)}


def alternate(name, pairs, first, second):
    """Runs both in turn; what each took, and how many times the first's time the second needs."""
    a, b = [], []
    for _ in range(pairs):
        a.append(first())
        b.append(second())
    row = {"name": name, "pairs": pairs}
    for side, runs in (("ours", a), ("other", b)):
        row[side] = {"ms": spread([r["ms_median"] for r in runs]),
                     "peak_rss_mb": max(r["peak_rss_mb"] for r in runs)}
    row["ratio"] = spread([y["ms_median"] / x["ms_median"] for x, y in zip(a, b)])
    print(json.dumps(row), flush=True)
    return row


def compiled_with(build):
    """Compiler and flags, as make left them."""
    try:
        flags = pathlib.Path(build, "flags").read_text().split()
    except OSError:
        return "unknown"
    version = subprocess.run([flags[0], "--version"], stdout=subprocess.PIPE, text=True).stdout
    kept = [f for f in flags[1:] if f.startswith(("-O", "-std", "-f", "-m"))]
    return f"{version.splitlines()[0]}: {' '.join(kept)}"


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def versions(o, version, theirs):
    row = {"name": "versions", "fovea": version, "compiler": compiled_with(o.build),
           "torch": theirs["torch"], "torch flags": theirs["torch flags"],
           "python": platform.python_version(), "processor": processor(), "cores": os.cpu_count(),
           "environment": {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "MKL_"))}}
    print(json.dumps(row), flush=True)
    return row


def line(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(rows, about):
    ms = "{0[ms][median]:.2f} ({0[ms][min]:.2f} to {0[ms][max]:.2f})".format
    print("\nMilliseconds a step: the median of the processes' medians, and their range.\n")
    print(line("work", "threads", "ours", "the other", "ratio", "its range", "our MB", "their MB"))
    print(line(*["---"] * 8))
    for name, threads, r in rows:
        q = r["ratio"]
        print(line(name, threads, ms(r["ours"]), ms(r["other"]), f"{q['median']:.2f}",
                   f"{q['min']:.2f} to {q['max']:.2f}", r["ours"]["peak_rss_mb"],
                   r["other"]["peak_rss_mb"]))
    print(f"\nfovea {about['fovea']} ({about['compiler']}), PyTorch {about['torch']} "
          f"({about['torch flags']}), {about['cores']} cores of {about['processor']}.")


def skip(reason):
    print(f"run.py: skipped: {reason}")
    sys.exit(0)


def main():
    o = options()
    if o.prepare:
        return prepare(o.prepare)
    program = pathlib.Path(o.build, "bench", "tagger_step")
    if not program.exists():
        skip(f"{program} is not built: make bench")
    if not THEIRS.exists():
        skip(f"there is no {THEIRS} (FOVEA_SHARED names the folder above bench)")
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
        skip(f"{PYTHON} has no torch (PYTHON names one that has)")
    with tempfile.TemporaryDirectory() as folder:
        data = str(pathlib.Path(folder, "tagger.npz"))
        theirs = run([PYTHON, __file__, "--prepare", data])
        about = versions(o, check_losses(o, data, theirs), theirs)
        rows = []
        for threads in o.threads:
            for variant in VARIANTS:
                r = alternate(f"tagger step, {threads} threads, PyTorch {variant}", o.pairs,
                              lambda: ours(o, data, threads),
                              lambda: pytorch(o, threads, variant))
                rows.append((f"tagger, PyTorch {variant}", threads, r))
        if len(o.threads) > 1:
            few, many = o.threads[0], o.threads[-1]
            r = alternate(f"tagger step, ours with {many} threads against {few}", o.pairs,
                          lambda: ours(o, data, many), lambda: ours(o, data, few))
            rows.append((f"tagger, ours alone ({few} thread is the other)", many, r))
    table(rows, about)


if __name__ == "__main__":
    main()
