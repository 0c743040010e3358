"""Cases of the softmax family, norms and losses."""

import itertools
import math

import torch
from torch.nn import functional as F

from op_fixtures.record import case, distinct, family, generator, ids, pieces, rand, truths, values


def plus_one(x, axis):
    zero = torch.zeros_like(x.narrow(axis, 0, 1))
    return torch.softmax(torch.cat([x, zero], axis), axis).narrow(axis, 0, x.shape[axis])


def sparsemax(x, axis):
    """Martins and Astudillo, 2016: x - threshold; the largest numbers that fit share the rest."""
    x = x.transpose(axis, -1)
    z = torch.sort(x, -1, descending=True)[0]
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    total = torch.cumsum(z, -1)
    size = (1 + k * z > total).sum(-1, keepdim=True)
    threshold = (torch.gather(total, -1, size - 1) - 1) / size
    return torch.clamp(x - threshold, min=0).transpose(axis, -1)


def near_edge(x, axis):
    """Whether a number is exactly at the threshold, where sparsemax has no derivative."""
    y = sparsemax(x, axis)
    threshold = ((x - y) * (y > 0)).sum(axis, keepdim=True) / (y > 0).sum(axis, keepdim=True)
    return bool(((x - threshold).abs() < 1e-6).any())


def softmaxes():
    family("softmax")
    ops = {
        "softmax": torch.softmax,
        "log_softmax": torch.log_softmax,
        "softmax_plus_one": plus_one,
        "sparsemax": sparsemax,
    }
    gates = {
        "glu": F.glu,
        "swiglu": lambda x, a: F.silu(x.chunk(2, a)[0]) * x.chunk(2, a)[1],
        "geglu": lambda x, a: F.gelu(x.chunk(2, a)[0]) * x.chunk(2, a)[1],
    }
    for shape in ((5,), (1,), (3, 4), (4, 1), (2, 3, 4), (2, 2, 3, 2), (1, 2, 1, 3, 1, 2), (40,)):
        for axis in range(-1, len(shape) - 1):
            for op, fn in ops.items():
                x = distinct(*shape)
                while op == "sparsemax" and near_edge(x, axis):
                    x = distinct(*shape)
                case(op, lambda x: fn(x, axis), x, axis=axis)
    for op in ("softmax", "log_softmax", "softmax_plus_one"):
        case(
            op,
            lambda x: ops[op](x, -1),
            torch.tensor([[800.0, 801, -800], [0, 0, 0], [-900, -901, -902]]),
            axis=-1,
        )
    for op in ("softmax", "softmax_plus_one"):
        values(op, lambda x: ops[op](x, 0), torch.tensor([1.0, -math.inf, 2]), axis=0)
    for shape, axis in (
        ((6,), 0),
        ((2, 6), 1),
        ((2, 6), -1),
        ((4, 3), 0),
        ((2, 4, 3), 1),
        ((2, 2, 2, 2), -2),
    ):
        for op, fn in gates.items():
            case(op, lambda x: fn(x, axis), rand(*shape), axis=axis)


def norms():
    family("norms")
    for shape, axes in (
        ((4, 5), 1),
        ((5,), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4), 2),
        ((2, 3, 4), 3),
        ((2, 2, 3, 2), 2),
        ((6, 1), 1),
    ):
        tail = shape[len(shape) - axes :]
        for eps in (None, 1e-3, 0.5):
            e = 1e-5 if eps is None else eps
            x, w, b = rand(*shape), rand(*tail), rand(*tail)
            o = {"eps": eps, "axes_count": axes}
            case("layer_norm", lambda x, w, b: F.layer_norm(x, tail, w, b, e), x, w, b, **o)
            case("layer_norm", lambda x: F.layer_norm(x, tail, eps=e), x, **o)
            case("layer_norm", lambda x, w: F.layer_norm(x, tail, w, eps=e), x, w, **o)
            case("rms_norm", lambda x, w: F.rms_norm(x, tail, w, e), x, w, **o)
            case("rms_norm", lambda x: F.rms_norm(x, tail, eps=e), x, **o)
    for shape, groups in (
        ((2, 4, 3), 2),
        ((2, 4), 2),
        ((2, 6, 2), 3),
        ((1, 4, 2, 3), 4),
        ((2, 2, 2, 2, 2), 1),
        ((3, 4), 1),
    ):
        c = shape[1]
        for eps in (None, 0.1):
            e = 1e-5 if eps is None else eps
            x, w, b = rand(*shape), rand(c), rand(c)
            case(
                "group_norm",
                lambda x, w, b: F.group_norm(x, groups, w, b, e),
                x,
                w,
                b,
                groups=groups,
                eps=eps,
            )
            case("group_norm", lambda x: F.group_norm(x, groups, eps=e), x, groups=groups, eps=eps)
            if len(shape) > 2:
                case(
                    "instance_norm",
                    lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=e),
                    x,
                    w,
                    b,
                    eps=eps,
                )
                case("instance_norm", lambda x: F.instance_norm(x, eps=e), x, eps=eps)
            batch = lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=e)
            case("batch_norm", batch, x, w, b, eps=eps)
            case("batch_norm", lambda x: batch(x, None, None), x, eps=eps)
            mean, variance = rand(c), rand(c, low=0.25, high=2)
            case(
                "batch_norm_fixed",
                lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b, eps=e),
                x,
                w,
                b,
                mean,
                variance,
                grad=[True, True, True, False, False],
                eps=eps,
            )
            dims = [i for i in range(len(shape)) if i != 1]
            values(
                "batch_norm_statistics",
                lambda x: torch.stack([x.mean(dims), x.var(dims)]),
                x,
                eps=eps,
            )
    for shape in ((5,), (3, 4), (2, 3, 4), (2, 2, 3, 2)):
        for axis in range(-1, len(shape) - 1):
            for eps in (None, 2.0):
                case(
                    "l2_normalize",
                    lambda x: F.normalize(x, dim=axis, eps=1e-12 if eps is None else eps),
                    rand(*shape),
                    axis=axis,
                    eps=eps,
                )


def losses():
    family("losses")
    for rows, classes in ((1, 3), (4, 5), (6, 2), (5, 1), (3, 8)):
        for variant in range(3):
            labels = ids(rows, classes)
            if variant:
                labels[0 if rows == 1 else generator.randrange(rows)] = -100
            at = torch.tensor(labels)
            weight = rand(classes, low=0.25, high=2).tolist()
            for w, smoothing in itertools.product((None, weight), (0, 0.1, 0.5)):
                tw = None if w is None else torch.tensor(w)
                count = sum((1 if w is None else w[k]) for k in labels if k >= 0)
                case(
                    "cross_entropy_sum",
                    lambda x: F.cross_entropy(
                        x, at, tw, reduction="sum", label_smoothing=smoothing
                    ),
                    rand(rows, classes),
                    labels=labels,
                    weight=w,
                    smoothing=smoothing,
                    count=count,
                )
                if smoothing == 0:
                    case(
                        "nll_sum",
                        lambda x: F.nll_loss(x, at, tw, reduction="sum"),
                        rand(rows, classes),
                        labels=labels,
                        weight=w,
                        count=count,
                    )
            case(
                "soft_cross_entropy_sum",
                lambda x, y: F.cross_entropy(x, y, reduction="sum"),
                rand(rows, classes),
                rand(rows, classes, low=0, high=1),
            )
            case(
                "soft_cross_entropy_sum",
                lambda x, y: F.cross_entropy(x, y, torch.tensor(weight), reduction="sum"),
                rand(rows, classes),
                rand(rows, classes, low=0, high=1),
                weight=weight,
            )
    for shape in ((), (5,), (3, 4), (2, 3, 2), (0,), (4, 1)):
        n = math.prod(shape)
        for k in range(3):
            x, y = distinct(*shape, low=-3, high=0) * 2, rand(*shape) + 1 / 128
            case("mse_sum", lambda x, y: F.mse_loss(x, y, reduction="sum"), x, y, count=n)
            case("l1_sum", lambda x, y: F.l1_loss(x, y, reduction="sum"), x, y, count=n)
            for delta in (1, 0.5, 3):
                case(
                    "huber_sum",
                    lambda x, y: F.huber_loss(x, y, "sum", delta),
                    x,
                    y,
                    delta=delta,
                    count=n,
                )
            p = rand(*shape, low=0, high=1)
            case(
                "bce_with_logits_sum",
                lambda x, p: F.binary_cross_entropy_with_logits(x, p, reduction="sum"),
                x,
                p,
                count=n,
            )
            if len(shape) > 0:
                pos = rand(shape[-1], low=0.25, high=3)
                case(
                    "bce_with_logits_sum",
                    lambda x, p: F.binary_cross_entropy_with_logits(
                        x, p, reduction="sum", pos_weight=pos
                    ),
                    x,
                    p,
                    pos_weight=pos.tolist(),
                    count=n,
                )
            labels = [1 if v else -1 for v in truths(*shape).flatten().tolist()]
            sign = torch.tensor(labels, dtype=torch.float64).reshape(shape)
            for margin in (1, 0.25):
                case(
                    "hinge_sum",
                    lambda x: torch.relu(margin - sign * x).sum(),
                    x + 1 / 256,
                    labels=labels,
                    margin=margin,
                    count=n,
                )
    for rows, d in ((1, 3), (4, 3), (3, 5), (5, 1)):
        for k in range(4):
            target = rand(rows, d, low=0, high=1)
            if k == 1:
                target[0, 0] = 0
            case(
                "kl_div_sum",
                lambda x, y: F.kl_div(x, y, reduction="sum"),
                rand(rows, d, low=-3, high=0),
                target,
                grad=[True, bool((target > 0).all())],  # infinite at 0
                count=rows,
            )
            labels = [1 if v else -1 for v in truths(rows).tolist()]
            for margin in (0, 0.25, -0.5):
                case(
                    "cosine_embedding_sum",
                    lambda a, b: F.cosine_embedding_loss(
                        a, b, torch.tensor(labels), margin, reduction="sum"
                    ),
                    rand(rows, d, gap=0.25),
                    rand(rows, d, gap=0.25),
                    labels=labels,
                    margin=margin,
                    count=rows,
                )
    # PyTorch's gradient is right behind a log_softmax only, so that is part of the case.
    for offsets, targets in (
        ([0, 4], [0, 2]),
        ([0, 4, 9], [0, 1, 3]),
        ([0, 3, 3 + 5], [0, 3, 3]),
        ([0, 1], [0, 1]),
    ):
        for classes, blank in ((3, 0), (4, 0), (4, 3)):
            for repeat in (False, True):
                if offsets[-1] * classes > 40:
                    continue
                allowed = [k for k in range(classes) if k != blank]
                labels = [
                    allowed[0] if repeat else allowed[i % len(allowed)] for i in range(targets[-1])
                ]

                def ctc(x, zero):
                    total = 0
                    for p, a, b in zip(
                        pieces(torch.log_softmax(x, 1), offsets), targets, targets[1:]
                    ):
                        total = total + F.ctc_loss(
                            p.unsqueeze(1),
                            torch.tensor([labels[a:b]], dtype=torch.long).reshape(1, -1),
                            [len(p)],
                            [b - a],
                            blank,
                            "sum",
                            zero,
                        )
                    return total

                x = rand(offsets[-1], classes)
                zero = not math.isfinite(float(ctc(x, False)))
                if not zero:
                    case(
                        "ctc_sum",
                        lambda x: ctc(x, False),
                        x,
                        segments=offsets,
                        targets=targets,
                        labels=labels,
                        blank=blank,
                        count=len(offsets) - 1,
                    )
                else:
                    values(
                        "ctc_sum",
                        lambda x: ctc(x, False),
                        x,
                        segments=offsets,
                        targets=targets,
                        labels=labels,
                        blank=blank,
                    )
                case(
                    "ctc_sum",
                    lambda x: ctc(x, True),
                    x,
                    segments=offsets,
                    targets=targets,
                    labels=labels,
                    blank=blank,
                    zero_infinity=1,
                )
