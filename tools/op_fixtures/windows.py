"""Cases of products, convolutions and pools."""

import itertools

import torch
from torch.nn import functional as F

from op_fixtures.record import case, distinct, family, pieces, rand


def products():
    family("products")
    for lead in ((), (3,), (2, 3), (0,), (2, 1, 2)):
        for inner, out in ((3, 2), (1, 4), (4, 1), (2, 3)):
            x, w, b = rand(*lead, inner), rand(out, inner), rand(out)
            case("affine", F.linear, x, w, b)
            case("affine", F.linear, x, w)
            case("affine_relu", lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b + 1 / 8192)
            case("affine_relu", lambda x, w: F.relu(F.linear(x, w)), x, w + 1 / 8192)
    for a, b in (
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((1, 3), (3, 1)),
        ((2, 2, 3), (3, 2)),
        ((2, 2, 3), (2, 3, 2)),
        ((1, 2, 3), (2, 3, 2)),
        ((2, 1, 2, 2), (3, 2, 1)),
        ((3,), (2, 3, 2)),
        ((2, 2, 3), (3,)),
        ((2, 2, 1, 2), (1, 2, 2, 3)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((4, 2, 2), (2,)),
        ((1, 1, 2, 1, 2), (2, 2, 2, 2)),
        ((5, 4), (4, 5)),
    ):
        for k in range(2):
            case("matmul", torch.matmul, rand(*a), rand(*b))
        for ta, tb in ((1, 0), (0, 1), (1, 1)):
            if len(a) > 1 and len(b) > 1:
                pa = a[:-2] + (a[-1], a[-2]) if ta else a
                pb = b[:-2] + (b[-1], b[-2]) if tb else b
                case(
                    "matmul",
                    lambda x, y: torch.matmul(x.mT if ta else x, y.mT if tb else y),
                    rand(*pa),
                    rand(*pb),
                    transpose_a=ta,
                    transpose_b=tb,
                )
    for lead in ((), (3,), (2, 2)):
        for i, j, out in ((2, 3, 2), (1, 1, 3), (3, 2, 1)):
            w = rand(out, i, j)
            case("bilinear", F.bilinear, rand(*lead, i), rand(*lead, j), w, rand(out))
            case("bilinear", F.bilinear, rand(*lead, i), rand(*lead, j), w)
        for m, n in ((2, 3), (1, 4), (3, 1)):
            case(
                "outer",
                lambda a, b: a.unsqueeze(-1) * b.unsqueeze(-2),
                rand(*lead, m),
                rand(*lead, n),
            )
    for a, b in (
        ((3,), (3,)),
        ((2, 3), (2, 3)),
        ((2, 3), (3,)),
        ((2, 1, 3), (4, 3)),
        ((1,), (1,)),
        ((2, 2, 2), (2, 2, 2)),
    ):
        case("dot", lambda x, y: (x * y).sum(-1), rand(*a), rand(*b))
    for notation, *sizes in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
        ("ij->ji", (2, 3)),
        ("ii->i", (3, 3)),
        ("ii->", (3, 3)),
        ("ii", (3, 3)),
        ("ij->", (2, 3)),
        ("ij->j", (2, 3)),
        ("i,i", (4,), (4,)),
        ("i,i->i", (4,), (4,)),
        ("i,j->ij", (3,), (4,)),
        ("ij,kj->ik", (2, 3), (4, 3)),
        ("ba", (2, 3)),
        ("...ij,...jk->...ik", (2, 2, 3), (2, 3, 2)),
        ("...ij,...jk->...ik", (1, 2, 3), (2, 3, 2)),
        ("...i->...", (2, 3)),
        ("bhqd,bhkd->bhqk", (1, 2, 2, 3), (1, 2, 3, 3)),
        ("ijk->kij", (2, 3, 4)),
        ("ij,ij->", (2, 3), (2, 3)),
        ("ij,jk", (2, 3), (3, 4)),
        ("bij,j->bi", (2, 2, 3), (3,)),
        ("ij,k->ijk", (2, 2), (3,)),
        ("iij->ij", (2, 2, 3)),
        ("ij,ji->i", (2, 3), (3, 2)),
        ("a...b->b...a", (2, 2, 3)),
        ("ij,i->ij", (3, 2), (3,)),
        ("abc,cd->abd", (2, 2, 2), (2, 3)),
        ("->", ()),
        (",->", (), ()),
        (",i->i", (), (3,)),
        ("i...,i->...", (2, 3), (2,)),
    ):
        for k in range(2):
            case(
                "einsum",
                lambda *x: torch.einsum(notation, *x),
                *[rand(*s) for s in sizes],
                notation=notation,
            )


CONV = (None, F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
MAX_POOL = (None, F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVG_POOL = (None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
ADAPTIVE = {
    "max": (None, F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d),
    "avg": (None, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
}


def small(*tensors):
    return all(x.numel() <= 40 for x in tensors)


def attempt(op, fn, *inputs, **options):
    """A case, unless PyTorch refuses it or it is too large."""
    try:
        y = fn(*[x.clone() for x in inputs])
    except RuntimeError:
        return
    if small(y, *inputs) and y.numel() > 0:
        case(op, fn, *inputs, **options)


def convolutions():
    family("convolution")
    grids = [
        (1, (8,), (3,)),
        (1, (5,), (2,)),
        (1, (6,), (1,)),
        (2, (4, 4), (2, 2)),
        (2, (3, 4), (2, 3)),
        (3, (2, 3, 2), (2, 2, 1)),
        (3, (2, 2, 2), (1, 2, 2)),
    ]
    for n, space, kernel in grids:
        for stride, padding, dilation, groups in itertools.product((1, 2), (0, 1), (1, 2), (1, 2)):
            for samples, ins, outs in ((1, 2, 2), (2, 1, 2)):
                if ins % groups or outs % groups:
                    continue
                x, w, b = rand(samples, ins, *space), rand(outs, ins // groups, *kernel), rand(outs)
                o = {
                    "stride": [stride] * n,
                    "padding": [padding] * n,
                    "dilation": [dilation] * n,
                    "groups": groups,
                }
                fn = lambda x, w, b=None: CONV[n](x, w, b, stride, padding, dilation, groups)
                op = ("", "conv1d", "conv2d", "conv")[n] if groups == 1 else "conv"
                attempt(op, fn, x, w, b, **o)
                attempt("conv", fn, x, w, **o)
                for extra in (0, 1):
                    if extra and stride == 1 and dilation == 1:
                        continue
                    wt = rand(ins, outs // groups, *kernel)
                    y = rand(samples, ins, *[max(1, s // 2) for s in space])
                    back = lambda x, w, b=None: TRANSPOSED[n](
                        x, w, b, stride, padding, extra, groups, dilation
                    )
                    attempt("conv_transpose", back, y, wt, b, **o, output_padding=[extra] * n)
    # Other padding behind than before.
    for before, after in (([1], [0]), ([0], [2]), ([2], [1])):
        x, w = rand(1, 2, 6), rand(2, 2, 3)
        o = {"padding": before, "padding_after": after}
        case("conv", lambda x, w: F.conv1d(F.pad(x, (before[0], after[0])), w), x, w, **o)
        full = lambda x, w: F.conv_transpose1d(x, w)
        case(
            "conv_transpose",
            lambda x, w: full(x, w)[:, :, before[0] : full(x, w).shape[2] - after[0]],
            x,
            rand(2, 2, 3),
            **o,
        )
        first, last = min(before[0], 1), min(after[0], 1)  # at most half a window
        case(
            "avg_pool",
            lambda x: F.avg_pool1d(F.pad(x, (first, last)), 3, 1),
            rand(2, 2, 6),
            kernel=[3],
            stride=[1],
            padding=[first],
            padding_after=[last],
        )
    x, w = rand(1, 1, 3, 4), rand(2, 1, 2, 2)
    case(
        "conv",
        lambda x, w: F.conv2d(F.pad(x, (1, 0, 0, 1)), w),
        x,
        w,
        padding=[0, 1],
        padding_after=[1, 0],
    )
    for n, space, kernel in (
        (1, (9,), (3,)),
        (1, (6,), (2,)),
        (2, (4, 4), (2, 2)),
        (2, (3, 5), (2, 3)),
        (3, (2, 3, 3), (2, 2, 2)),
    ):
        for stride, padding, ceil in itertools.product((0, 1, 2, 3), (0, 1), (0, 1)):
            if 2 * padding > min(kernel):
                continue
            o = {
                "kernel": list(kernel),
                "stride": [stride] * n,
                "padding": [padding] * n,
                "ceil": ceil,
            }
            for samples, channels in ((1, 2), (2, 1)):
                x = distinct(samples, channels, *space, low=-4, high=4)
                for dilation in (1, 2):
                    attempt(
                        "max_pool",
                        lambda x: MAX_POOL[n](
                            x, kernel, stride or kernel, padding, dilation, bool(ceil)
                        ),
                        x,
                        **o,
                        dilation=[dilation] * n,
                    )
                for exclude in (0, 1):
                    attempt(
                        "avg_pool",
                        lambda x: AVG_POOL[n](
                            x, kernel, stride or kernel, padding, bool(ceil), not exclude
                        ),
                        x,
                        **o,
                        exclude_padding=exclude,
                    )
    for n, space, sizes in (
        (1, (7,), (3,)),
        (1, (7,), (1,)),
        (1, (5,), (5,)),
        (1, (3,), (4,)),
        (2, (4, 5), (2, 3)),
        (2, (3, 3), (1, 1)),
        (3, (2, 3, 3), (1, 2, 2)),
    ):
        for name in ("max", "avg"):
            for samples, channels in ((1, 2), (2, 1)):
                attempt(
                    f"adaptive_{name}_pool",
                    lambda x: ADAPTIVE[name][n](x, sizes),
                    distinct(samples, channels, *space, low=-4, high=4),
                    sizes=list(sizes),
                )
    for n, space, kernel in (
        (1, (5,), (2,)),
        (1, (6,), (3,)),
        (2, (3, 3), (2, 2)),
        (2, (2, 4), (1, 2)),
        (2, (4, 4), (3, 3)),
    ):
        for stride, padding, dilation, channels in itertools.product(
            (1, 2), (0, 1), (1, 2), (1, 2)
        ):
            two = (lambda *v: v) if n == 2 else (lambda *v: (1,) + v)
            k, s, p, d = (
                two(*kernel),
                two(*[stride] * n),
                two(*[padding] * n) if n == 2 else (0, padding),
                two(*[dilation] * n),
            )
            o = {
                "kernel": list(kernel),
                "stride": [stride] * n,
                "padding": [padding] * n,
                "dilation": [dilation] * n,
            }
            unfold = lambda x: F.unfold(x if n == 2 else x.unsqueeze(2), k, d, p, s)
            x = rand(1, channels, *space)
            attempt("unfold", unfold, x, **o)
            try:
                columns = rand(*unfold(x).shape)
            except RuntimeError:
                continue
            fold = lambda c: F.fold(c, two(*space), k, d, p, s).reshape(1, channels, *space)
            attempt("fold", fold, columns, **o, sizes=list(space))
    segment_convolutions()


def segment_convolutions():
    for offsets in ([0, 8], [0, 3, 8], [0, 4, 4, 8]):
        by = lambda fn: (
            lambda x, *rest: torch.cat(
                [fn(p.T.unsqueeze(0), *rest)[0].T for p in pieces(x, offsets) if len(p)]
            )
        )
        for stride, padding, dilation, k in itertools.product((1, 2), (0, 1), (1, 2), (1, 2, 3)):
            o = {
                "segments": offsets,
                "stride": [stride],
                "padding": [padding],
                "dilation": [dilation],
            }
            x, w, b = rand(8, 2), rand(2, 2, k), rand(2)
            attempt(
                "segment_conv",
                by(lambda x, w, b: F.conv1d(x, w, b, stride, padding, dilation)),
                x,
                w,
                b,
                **o,
            )
            attempt(
                "segment_conv",
                by(lambda x, w: F.conv1d(x, w, None, stride, padding, dilation, 2)),
                x,
                rand(2, 1, k),
                **o,
                groups=2,
            )
            attempt(
                "segment_conv_transpose",
                by(lambda x, w, b: F.conv_transpose1d(x, w, b, stride, padding, 0, 1, dilation)),
                x,
                w,
                b,
                **o,
            )
            if dilation == 1 and 2 * padding <= k:
                o["kernel"] = [k]
                attempt(
                    "segment_max_pool",
                    by(lambda x: F.max_pool1d(x, k, stride, padding)),
                    distinct(8, 2),
                    **o,
                )
                attempt(
                    "segment_avg_pool", by(lambda x: F.avg_pool1d(x, k, stride, padding)), x, **o
                )
