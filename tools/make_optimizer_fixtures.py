"""Writes tests/data/optimizers.h and tests/data/schedules.h: what PyTorch's optimisers and schedules give.

    python3 tools/make_optimizer_fixtures.py tests/data

All in double. Gradients are a function of (step, index) that C repeats exactly: see noise().
"""

import sys
import warnings

import torch

STEPS = 50
KEPT = (1, 7, 50)
NUMBERS = 17  # weight [3, 4] with decay, then bias [5] without
TABLE = (6, 2)
TOTAL = 20
SCALE = 0.25


def noise(step, index):
    """A number in [-0.5, 0.5) that a double holds exactly."""
    h = (step * 2654435761 + index * 40503 + 12345) % 2**32
    h ^= h >> 15
    h = h * 2246822519 % 2**32
    h ^= h >> 13
    return h / 2**32 - 0.5


def rate(step):
    return 0.01 * (1 + step % 3)


def numbers(step, first, shape):
    count = torch.Size(shape).numel()
    values = [noise(step, first + i) for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def run(make, decay, clip):
    weight = numbers(0, 0, (3, 4)).requires_grad_()
    bias = numbers(0, 12, (5,)).requires_grad_()
    groups = [
        {"params": [weight], "weight_decay": decay},
        {"params": [bias], "weight_decay": 0.0},
    ]
    optimizer = make(groups)
    kept, norms = [], []
    for step in range(1, STEPS + 1):
        weight.grad = SCALE * numbers(step, 0, (3, 4))
        bias.grad = SCALE * numbers(step, 12, (5,))
        largest = clip if clip > 0 else float("inf")
        norm = torch.nn.utils.clip_grad_norm_([weight, bias], largest)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        if step in KEPT:
            kept.append(torch.cat([weight.detach().flatten(), bias.detach()]).tolist())
            norms.append(norm.item())
    return kept, norms


def run_sparse():
    table = numbers(0, 0, TABLE).requires_grad_()
    optimizer = torch.optim.SparseAdam([table], lr=1.0)
    kept = []
    for step in range(1, STEPS + 1):
        rows = [row for row in range(TABLE[0]) if noise(step, 100 + row) > 0]
        index = torch.tensor([rows], dtype=torch.int64)
        values = numbers(step, 0, TABLE)[rows]
        table.grad = torch.sparse_coo_tensor(index, values, TABLE)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        if step in KEPT:
            kept.append(table.detach().flatten().tolist())
    return kept


def adam(kind, **options):
    return lambda groups: kind(groups, lr=1.0, foreach=False, **options)


ADAMW, ADAM, SGD = torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD
# C options, PyTorch's constructor, its weight decay, clip.
CASES = [
    ("{.kind = FV_ADAMW}", adam(ADAMW), 0.01, 0),
    ("{.kind = FV_ADAMW, .weight_decay = FV_NONE}", adam(ADAMW), 0, 0),
    ("{.kind = FV_ADAMW, .weight_decay = 0.3}", adam(ADAMW), 0.3, 0.2),
    ("{.kind = FV_ADAMW, .beta1 = 0.4, .beta2 = 0.95, .eps = 1e-3}",
     adam(ADAMW, betas=(0.4, 0.95), eps=1e-3), 0.01, 0),
    ("{.kind = FV_ADAMW, .beta1 = FV_NONE}", adam(ADAMW, betas=(0.0, 0.999)), 0.01, 0),
    ("{.kind = FV_ADAM}", adam(ADAM), 0, 0),
    ("{.kind = FV_ADAM, .weight_decay = 0.1}", adam(ADAM), 0.1, 0),
    ("{.kind = FV_ADAM}", adam(ADAM), 0, 0.3),
    ("{.kind = FV_SGD}", adam(SGD), 0, 0),
    ("{.kind = FV_SGD, .weight_decay = 0.1}", adam(SGD), 0.1, 0.1),
    ("{.kind = FV_SGD, .momentum = 0.9}", adam(SGD, momentum=0.9), 0, 0),
    ("{.kind = FV_SGD, .momentum = 0.9, .weight_decay = 0.1}", adam(SGD, momentum=0.9), 0.1, 0),
    ("{.kind = FV_SGD, .momentum = 0.9, .nesterov = true}",
     adam(SGD, momentum=0.9, nesterov=True), 0, 0),
    ("{.kind = FV_SGD, .momentum = 0.5, .nesterov = true, .weight_decay = 0.1}",
     adam(SGD, momentum=0.5, nesterov=True), 0.1, 0.3),
]


def array(values, indent):
    lines, line = [], indent
    for value in values:
        text = repr(value) + ", "
        if len(line) + len(text) > 100:
            lines.append(line.rstrip())
            line = indent
        line += text
    lines.append(line.rstrip().rstrip(","))
    return "\n".join(lines)


def curve(scheduler, optimizer):
    values = [optimizer.param_groups[0]["lr"]]
    for _ in range(TOTAL):
        optimizer.step()
        scheduler.step()
        values.append(optimizer.param_groups[0]["lr"])
    return values


def main(folder):
    made_by = f"/* Written by tools/make_optimizer_fixtures.py with PyTorch {torch.__version__}. */\n"
    with open(f"{folder}/optimizers.h", "w", encoding="utf-8") as out:
        out.write(made_by)
        out.write(f"enum {{ FIXTURE_STEPS = {STEPS}, FIXTURE_NUMBERS = {NUMBERS} }};\n")
        out.write(f"static const double fixture_scale = {SCALE};\n")
        out.write(f"static const int fixture_kept[] = {{{', '.join(map(str, KEPT))}}};\n\n")
        out.write("static const struct {\n    fv_optimizer_opts opts;\n    double clip;\n"
                  "    double norm[3];\n    double after[3][FIXTURE_NUMBERS];\n} fixtures[] = {\n")
        for options, make, decay, clip in CASES:
            kept, norms = run(make, decay, clip)
            out.write(f"    {{{options},\n     {clip},\n     {{{', '.join(map(repr, norms))}}},\n     {{")
            out.write(",\n      ".join("{\n" + array(values, " " * 8) + "}" for values in kept))
            out.write("}},\n")
        out.write("};\n\n/* SparseAdam: a table of 6 rows of 2. */\n")
        out.write("static const double sparse_adam[3][12] = {\n    ")
        out.write(",\n    ".join("{\n" + array(values, " " * 8) + "}" for values in run_sparse()))
        out.write("};\n")
    with open(f"{folder}/schedules.h", "w", encoding="utf-8") as out:
        out.write(made_by)
        out.write(f"enum {{ SCHEDULE_TOTAL = {TOTAL} }};\n")
        for name, make in [
            ("cosine", lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, TOTAL, eta_min=0.1)),
            ("linear", lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, TOTAL)),
        ]:
            optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
            out.write(f"static const double pytorch_{name}[SCHEDULE_TOTAL + 1] = {{\n")
            out.write(array(curve(make(optimizer), optimizer), "    ") + "};\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/data")
