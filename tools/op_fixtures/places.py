"""Cases of ops that move, choose and group numbers."""

import itertools
import math

import numpy as np
import torch
from torch.nn import functional as F

from op_fixtures.record import case, distinct, family, generator, ids, pieces, rand, truths, values


def shapes():
    family("shapes")
    for a, b in (
        ((6,), (2, 3)),
        ((2, 3), (3, 2)),
        ((2, 3), (6,)),
        ((1,), ()),
        ((), (1, 1)),
        ((2, 0), (0, 5)),
        ((2, 3, 4), (4, 6)),
        ((4, 6), (2, 2, 2, 3, 1, 1)),
    ):
        case("reshape", lambda x: torch.reshape(x, b), rand(*a), shape=list(b))
    for shape, axes in (
        ((1, 3), (0, -2)),
        ((2, 1, 3), (1, -2)),
        ((1,), (0, -1)),
        ((2, 3, 1), (2, -1)),
    ):
        for axis in axes:
            case("squeeze", lambda x: torch.squeeze(x, axis), rand(*shape), axis=axis)
    for shape in ((), (3,), (2, 3), (2, 3, 2), (1, 2, 1, 2, 2)):
        for axis in range(-len(shape) - 1, len(shape) + 1):
            case("unsqueeze", lambda x: torch.unsqueeze(x, axis), rand(*shape), axis=axis)
    for shape, first, last in (
        ((2, 3), 0, 1),
        ((2, 3, 4), 1, 2),
        ((2, 3, 4), 0, -2),
        ((2, 3, 4), -2, -1),
        ((5,), 0, 0),
        ((2, 1, 2, 1, 2, 2), 1, 4),
    ):
        case(
            "flatten", lambda x: torch.flatten(x, first, last), rand(*shape), first=first, last=last
        )
    for n, size in ((1, (3,)), (2, (2, 3)), (3, (2, 3, 4)), (4, (2, 3, 1, 2))):
        for axes in itertools.permutations(range(n)):
            case("permute", lambda x: torch.permute(x, axes), rand(*size), axes=list(axes))
    case(
        "permute",
        lambda x: torch.permute(x, (5, 0, 3, 1, 4, 2)),
        rand(1, 2, 2, 1, 3, 2),
        axes=[5, 0, 3, 1, 4, 2],
    )
    for shape in ((2, 3), (2, 3, 4), (1, 2, 3, 2)):
        for a, b in itertools.combinations(range(len(shape)), 2):
            case(
                "transpose", lambda x: torch.transpose(x, a, b), rand(*shape), a=a, b=b - len(shape)
            )
    for a, b in (
        ((3,), (2, 3)),
        ((1,), (4,)),
        ((), (2, 2)),
        ((2, 1), (2, 5)),
        ((2, 1, 3), (4, 2, 1, 3)),
        ((1, 3), (0, 3)),
    ):
        case("expand", lambda x: x.expand(b), rand(*a), shape=list(b))
    for sizes, axis in (
        ([(2, 3), (2, 1)], 1),
        ([(2, 3), (1, 3)], 0),
        ([(2,), (3,), (1,)], -1),
        ([(2, 3)], 0),
        ([(2, 2, 3), (2, 1, 3), (2, 0, 3)], 1),
        ([(1, 2, 2), (1, 2, 1)], -1),
        ([(0, 2), (2, 2)], 0),
    ):
        case("concat", lambda *x: torch.cat(x, axis), *[rand(*s) for s in sizes], axis=axis)
    for shape in ((), (3,), (2, 3)):
        for axis in range(-len(shape) - 1, len(shape) + 1):
            case(
                "stack",
                lambda *x: torch.stack(x, axis),
                rand(*shape),
                rand(*shape),
                rand(*shape),
                axis=axis,
            )
    for shape, axis, sizes in (
        ((6,), 0, [1, 2, 3]),
        ((2, 6), 1, [4, 2]),
        ((4, 3), 0, [1, 0, 3]),
        ((2, 4, 2), -2, [3, 1]),
    ):
        for part in range(len(sizes)):
            case(
                "split",
                lambda x: torch.split(x, sizes, axis)[part],
                rand(*shape),
                axis=axis,
                sizes=sizes,
                part=part,
            )
    for shape, axis, parts in (((6,), 0, 3), ((2, 6), -1, 2), ((4, 3), 0, 4)):
        for part in range(parts):
            case(
                "split",
                lambda x: torch.chunk(x, parts, axis)[part],
                rand(*shape),
                axis=axis,
                parts=parts,
                part=part,
            )
    end = 2**31 - 1
    for first, last, step in (
        (0, end, 1),
        (1, 4, 1),
        (-3, end, 1),
        (0, -1, 2),
        (2, 2, 1),
        (-20, 20, 3),
        (4, 1, 1),
        (1, end, 2),
    ):
        for shape, axis in (((6,), 0), ((2, 6), 1), ((6, 2), 0), ((2, 6, 2), -2)):
            where = [slice(None)] * len(shape)
            where[axis] = slice(first, None if last == end else last, step)
            case(
                "slice",
                lambda x: x[tuple(where)],
                rand(*shape),
                axis=axis,
                first=first,
                end=last,
                step=step,
            )
    for first, last, step in ((-1, end, -1), (4, 0, -1), (5, -4, -2), (20, end, -3)):
        places = list(range(6))[first : (None if last == end else last) : step]
        case("slice", lambda x: x[places], rand(6), axis=0, first=first, end=last, step=step)
        case("slice", lambda x: x[:, places], rand(3, 6), axis=1, first=first, end=last, step=step)
    for mode, name in enumerate(("constant", "edge", "reflect", "wrap")):
        for shape, axis in (((4,), 0), ((2, 4), 1), ((4, 2), 0), ((2, 4, 2), -2)):
            for before, after in ((1, 0), (0, 2), (2, 1), (3, 3), (0, 0)):
                if math.prod(shape) // shape[axis] * (shape[axis] + before + after) > 40:
                    continue
                places = (
                    torch.from_numpy(np.pad(np.arange(4), (before, after), name)) if mode else None
                )
                for value in ((0, 1.5) if mode == 0 else (0,)):
                    case(
                        "pad",
                        lambda x: (
                            pad_axis(x, axis, before, after, value)
                            if mode == 0
                            else torch.index_select(x, axis, places)
                        ),
                        rand(*shape),
                        axis=axis,
                        before=before,
                        after=after,
                        mode=mode,
                        value=value,
                    )
    for shape in ((4,), (2, 3), (2, 3, 2)):
        for axis in range(-1, len(shape)):
            case("flip", lambda x: torch.flip(x, [axis]), rand(*shape), axis=axis)
            for shift in (1, -1, 5, 0):
                case(
                    "roll",
                    lambda x: torch.roll(x, shift, axis),
                    rand(*shape),
                    axis=axis,
                    shift=shift,
                )
    for shape, repeats in (
        ((3,), [2]),
        ((2, 3), [1, 2]),
        ((2, 3), [2, 1]),
        ((2, 2), [2, 3]),
        ((1, 2, 2), [3, 1, 2]),
        ((2,), [0]),
    ):
        case("tile", lambda x: torch.tile(x, repeats), rand(*shape), repeats=repeats)
    for shape, count in (((3,), 2), ((2, 3), 3), ((2, 2, 2), 1), ((4, 1), 0)):
        case(
            "repeat_rows",
            lambda x: torch.repeat_interleave(x, count, 0),
            rand(*shape),
            count_of=count,
        )
    for shape in ((3, 3), (2, 4), (4, 2), (2, 3, 3), (1, 1)):
        for diagonal in (-3, -1, 0, 1, 2):
            case("tril", lambda x: torch.tril(x, diagonal), rand(*shape), diagonal=diagonal)
            case("triu", lambda x: torch.triu(x, diagonal), rand(*shape), diagonal=diagonal)
            if -shape[-2] < diagonal < shape[-1]:
                case(
                    "diagonal",
                    lambda x: torch.diagonal(x, diagonal, -2, -1),
                    rand(*shape),
                    diagonal=diagonal,
                )
    for which, classes in (([0, 2, 1, 2], 3), ([0], 1), ([3, 0], 5)):
        values(
            "one_hot",
            lambda: F.one_hot(torch.tensor(which), classes).double(),
            ids=which,
            classes=classes,
        )


def pad_axis(x, axis, before, after, value):
    pads = [0, 0] * x.dim()
    at = x.dim() - 1 - axis % x.dim()
    pads[2 * at], pads[2 * at + 1] = before, after
    return F.pad(x, pads, value=value)


# ---- choosing and segments ----

SEGMENTS = [[0, 3, 5, 9], [0, 9], [0, 4, 4, 9], [0, 1, 2, 3, 9], [0, 0, 9]]


def choosing():
    family("choosing")
    for rows, d in ((5, 3), (1, 4), (8, 1)):
        for n in (1, 4, 7):
            which = ids(n, rows)
            at = torch.tensor(which)
            case("gather", lambda x: x[at], rand(rows, d), ids=which)
            case(
                "scatter_add",
                lambda x: torch.zeros(rows, d).index_add(0, at, x),
                rand(n, d),
                ids=which,
                rows=rows,
            )
            offsets = sorted([0, n, generator.randint(0, n), generator.randint(0, n)])
            bags = lambda x: torch.stack(
                [p.sum(0) / math.sqrt(max(1, len(p))) for p in pieces(x[at], offsets)]
            )
            case("gather_bags", bags, rand(rows, d), ids=which, segments=offsets)
    for shape in ((4,), (3, 4), (2, 3, 4), (2, 3, 2, 2)):
        for axis in range(-1, len(shape)):
            for n in (1, 3):
                which = ids(n, shape[axis])
                case(
                    "index_select",
                    lambda x: torch.index_select(x, axis, torch.tensor(which)),
                    rand(*shape),
                    axis=axis,
                    ids=which,
                )
                size = list(shape)
                size[axis] = n
                which = ids(math.prod(size), shape[axis])
                index = torch.tensor(which).reshape(size)
                case(
                    "take_along",
                    lambda x: torch.take_along_dim(x, index, axis),
                    rand(*shape),
                    axis=axis,
                    ids=which,
                    shape=size,
                )
    for shape, mask in (
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((3, 4), (3, 1)),
        ((5,), (5,)),
        ((2, 3, 2), (3, 1)),
        ((), ()),
    ):
        for value in (0, -1.5):
            yes = truths(*mask)
            case(
                "masked_fill",
                lambda x: x.masked_fill(yes.bool(), value),
                rand(*shape),
                yes=yes.flatten().tolist(),
                yes_shape=list(mask),
                value=value,
            )
    for rows, d in ((4, 3), (6, 1), (1, 5)):
        for keep in (truths(rows), torch.ones(rows), torch.zeros(rows)):
            case(
                "masked_select",
                lambda x: x[keep.bool()],
                rand(rows, d),
                keep=[int(k) for k in keep],
            )


def segments():
    family("segments")
    for offsets in SEGMENTS:
        rows, n = offsets[-1], len(offsets) - 1
        lengths = [b - a for a, b in zip(offsets, offsets[1:])]
        o = {"segments": offsets}
        each = lambda fn: (
            lambda x: torch.stack(
                [fn(p) if len(p) else torch.zeros(x.shape[1]) for p in pieces(x, offsets)]
            )
        )
        every = lambda fn: (lambda x: torch.cat([fn(p) for p in pieces(x, offsets)]))
        for d in (1, 3, 4):
            x = rand(rows, d)
            case("segment_sum", each(lambda p: p.sum(0)), x, **o)
            case("segment_mean", each(lambda p: p.mean(0)), x, **o)
            case("segment_max", each(lambda p: torch.amax(p, 0)), distinct(rows, d), **o)
            case("segment_softmax", every(lambda p: torch.softmax(p, 0)), x, **o)
            case("segment_first", each(lambda p: p[0]), x, **o)
            case("segment_last", each(lambda p: p[-1]), x, **o)
            case("segment_reverse", every(lambda p: torch.flip(p, [0])), x, **o)
            position = [generator.randrange(-k, k) if k else 0 for k in lengths]
            case(
                "segment_pick",
                lambda x: torch.stack(
                    [
                        p[i] if len(p) else torch.zeros(d)
                        for p, i in zip(pieces(x, offsets), position)
                    ]
                ),
                x,
                **o,
                position=position
            )
            case(
                "segment_expand",
                lambda x: torch.cat([x[s : s + 1].expand(k, d) for s, k in enumerate(lengths)]),
                rand(n, d),
                **o
            )
            case(
                "add_positions",
                lambda x, table: x + torch.cat([table[:k] for k in lengths]),
                x,
                rand(max(lengths), d),
                **o
            )
            time = max(lengths)
            if n * time * d <= 40:
                case(
                    "unpack",
                    lambda x: torch.stack(
                        [F.pad(p, (0, 0, 0, time - len(p))) for p in pieces(x, offsets)]
                    ),
                    x,
                    **o,
                    time=time
                )
                case(
                    "pack",
                    lambda x: torch.cat([x[s, :k] for s, k in enumerate(lengths)]),
                    rand(n, time, d),
                    **o
                )
            for radius in (0, 1, 2):
                if rows * d * (2 * radius + 1) <= 40:
                    around = lambda p: torch.cat(
                        [
                            F.pad(p, (0, 0, radius, radius))[i : i + len(p)]
                            for i in range(2 * radius + 1)
                        ],
                        1,
                    )
                    case("neighbours", every(around), x, **o, radius=radius)
        other = sorted([0, 7] + [generator.randint(0, 7) for _ in range(n - 1)])
        for d in (1, 2):
            case(
                "segment_concat",
                lambda a, b: torch.cat(
                    [torch.cat(p) for p in zip(pieces(a, offsets), pieces(b, other))]
                ),
                rand(rows, d),
                rand(7, d),
                **o,
                other=other
            )
        values(
            "segment_positions", lambda: torch.cat([torch.arange(k) for k in lengths]).double(), **o
        )
