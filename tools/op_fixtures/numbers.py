"""Cases number by number, and over axes."""

import itertools
import math

import torch
from torch.nn import functional as F

from op_fixtures.record import case, distinct, family, rand, truths, values

SHAPES = [
    (),
    (1,),
    (7,),
    (0,),
    (3, 4),
    (2, 0, 3),
    (2, 1, 5),
    (2, 3, 2, 2),
    (1, 2, 1, 3, 2),
    (1, 2, 1, 2, 2, 1),
]
WIDE = {"low": -3, "high": 3, "gap": 1 / 64}
POSITIVE = {"low": 1 / 16, "high": 4}
INSIDE = {"low": -0.9, "high": 0.9}


def hardsigmoid(x):
    """PyTorch's own takes a sixth in single precision for its derivative."""
    return F.relu6(x + 3) / 6


UNARY = {
    "neg": (torch.neg, WIDE),
    "abs": (torch.abs, WIDE),
    "square": (torch.square, WIDE),
    "reciprocal": (torch.reciprocal, {"low": -3, "high": 3, "gap": 1 / 8}),
    "sqrt": (torch.sqrt, POSITIVE),
    "rsqrt": (torch.rsqrt, POSITIVE),
    "exp": (torch.exp, WIDE),
    "expm1": (torch.expm1, WIDE),
    "log": (torch.log, POSITIVE),
    "log1p": (torch.log1p, {"low": -0.9, "high": 4}),
    "sin": (torch.sin, WIDE),
    "cos": (torch.cos, WIDE),
    "tan": (torch.tan, {"low": -1.4, "high": 1.4}),
    "asin": (torch.asin, INSIDE),
    "acos": (torch.acos, INSIDE),
    "atan": (torch.atan, WIDE),
    "sinh": (torch.sinh, WIDE),
    "cosh": (torch.cosh, WIDE),
    "asinh": (torch.asinh, WIDE),
    "acosh": (torch.acosh, {"low": 1.125, "high": 4}),
    "atanh": (torch.atanh, INSIDE),
    "erf": (torch.erf, WIDE),
    "relu": (F.relu, WIDE),
    "selu": (F.selu, WIDE),
    "gelu": (F.gelu, WIDE),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), WIDE),
    "silu": (F.silu, WIDE),
    "mish": (F.mish, WIDE),
    "softplus": (F.softplus, WIDE),
    "sigmoid": (torch.sigmoid, WIDE),
    "log_sigmoid": (F.logsigmoid, WIDE),
    "tanh": (torch.tanh, WIDE),
    "hardtanh": (F.hardtanh, WIDE),
    "hardsigmoid": (hardsigmoid, {"low": -5, "high": 5}),
    "hardswish": (F.hardswish, {"low": -5, "high": 5}),
    "softsign": (F.softsign, WIDE),
}


def elementwise():
    family("elementwise")
    for op, (fn, domain) in UNARY.items():
        for shape in SHAPES:
            case(op, fn, rand(*shape, **domain))
    for shape in SHAPES[:5]:
        for slope in (0.01, 0.25, 1.5):
            case("leaky_relu", lambda x: F.leaky_relu(x, slope), rand(*shape, **WIDE), slope=slope)
        for alpha in (1, 0.5, 2):
            case("elu", lambda x: F.elu(x, alpha), rand(*shape, **WIDE), alpha=alpha)
        for factor in (-1.5, 0, 3):
            case("scale", lambda x: x * factor, rand(*shape), factor=factor)
            case("shift", lambda x: x + factor, rand(*shape), offset=factor)
        for p in (2, 3, -1, 0.5, -1.5, 1, 0):
            x = rand(*shape, **(WIDE if p == int(p) else POSITIVE))
            case("pow", lambda x: x**p, x, exponent=p)
        for low, high in ((-1, 1), (0, 0.5), (-8, 8)):
            case("clamp", lambda x: torch.clamp(x, low, high), rand(*shape), low=low, high=high)
    # Kinks and ties, where the derivative is what PyTorch says it is.
    kinks = torch.tensor([-3, -1, 0, 1, 3, 0.5, -0.0])
    for op in ("abs", "relu", "hardtanh", "hardsigmoid", "hardswish", "selu", "softsign"):
        case(op, UNARY[op][0], kinks)
    case("leaky_relu", lambda x: F.leaky_relu(x, 0.25), kinks, slope=0.25)
    case("elu", lambda x: F.elu(x, 2.0), kinks, alpha=2)
    case("clamp", lambda x: torch.clamp(x, -1, 1), kinks, low=-1, high=1)
    case("clamp", lambda x: torch.clamp(x, 0, 0.5), kinks, low=0, high=0.5)
    # Far out and not a number: values, and gradients where they are finite.
    far = torch.tensor([-800.0, -100, -40, -20, 20, 40, 100, 700])
    for op in (
        "sigmoid",
        "log_sigmoid",
        "softplus",
        "tanh",
        "silu",
        "mish",
        "gelu",
        "gelu_tanh",
        "selu",
        "erf",
        "softsign",
        "atan",
        "asinh",
        "hardswish",
    ):
        case(op, UNARY[op][0], far)
    tiny = torch.tensor([2.0**-k * s for k in (4, 10, 20, 40, 60) for s in (1, -1)])
    for op in (
        "expm1",
        "log1p",
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "asinh",
        "atanh",
        "tanh",
        "erf",
        "softsign",
        "silu",
        "gelu",
    ):
        case(op, UNARY[op][0], tiny)
    odd = torch.tensor([math.inf, -math.inf, math.nan, 0.0])
    for op in (
        "neg",
        "abs",
        "square",
        "reciprocal",
        "sqrt",
        "rsqrt",
        "exp",
        "expm1",
        "log",
        "log1p",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "erf",
        "relu",
        "sigmoid",
        "softplus",
        "log_sigmoid",
        "tanh",
        "hardtanh",
        "acosh",
        "hardsigmoid",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atanh",
    ):
        values(op, UNARY[op][0], odd)


PAIRS = [
    ((), ()),
    ((1,), ()),
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (1, 3, 1)),
    ((2, 3), ()),
    ((), (2, 3)),
    ((0, 3), (3,)),
    ((2, 0), (1, 1)),
    ((1, 1, 1), (2,)),
    ((2, 2, 2, 2), (2, 1, 2)),
    ((1, 2, 1, 2, 1), (2, 1, 2, 1, 2)),
    ((5, 1), (5, 1)),
    ((2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 1)),
    ((2, 3, 1), (2, 1, 5)),
    ((1, 6), (6,)),
    ((40,), (1,)),
    ((1, 2, 3), (4, 2, 3)),
]
RELATIONS = [torch.lt, torch.le, torch.eq, torch.ne, torch.ge, torch.gt]


def binary():
    family("binary")
    for a, b in PAIRS:
        x, y = rand(*a), rand(*b)
        case("add", torch.add, x, y)
        case("sub", torch.sub, x, y)
        case("mul", torch.mul, x, y)
        case("div", torch.div, x, rand(*b, gap=0.25))
        case("power", torch.pow, rand(*a, low=0.25, high=3), rand(*b))
        low, high = distinct(*a, low=-2, high=0), distinct(*b, low=-1, high=1)
        case("minimum", torch.minimum, low, high + 1 / 128)
        case("maximum", torch.maximum, low, high + 1 / 128)
        case("minimum", torch.minimum, torch.round(x), torch.round(y))
        case("maximum", torch.maximum, torch.round(x), torch.round(y))
        case("lerp", torch.lerp, x, y, rand(*b))
        case("lerp", torch.lerp, x, y, rand(*a))
        for shape in (a, b):
            yes = truths(*shape)
            case(
                "where",
                lambda p, q: torch.where(yes.bool(), p, q),
                x,
                y,
                yes=yes.flatten().tolist(),
                yes_shape=list(shape),
            )
        for k, relation in enumerate(RELATIONS):
            values("compare", relation, torch.round(x), torch.round(y), relation=k)
    for shape in SHAPES:
        for n in (1, 2, 3, 5):
            case("add_many", lambda *x: sum(x), *[rand(*shape) for _ in range(n)])
    odd = torch.tensor([1, math.nan, math.inf, -math.inf, 0, math.nan])
    other = torch.tensor([math.nan, 1, -math.inf, math.inf, 2, math.nan])
    for op, fn in (
        ("add", torch.add),
        ("sub", torch.sub),
        ("mul", torch.mul),
        ("div", torch.div),
        ("minimum", torch.minimum),
        ("maximum", torch.maximum),
    ):
        values(op, fn, odd, other)
    values("div", torch.div, torch.tensor([1.0, -1, 0]), torch.zeros(1))
    values(
        "power",
        torch.pow,
        torch.tensor([-2.0, -2, 0, 0, 4, -8]),
        torch.tensor([3.0, -2, 0, 2, 0.5, 0]),
    )
    for k, relation in enumerate(RELATIONS):
        values("compare", relation, odd, other, relation=k)
    case(
        "where",
        lambda p, q: torch.where(torch.tensor([True, False]), p, q),
        rand(2),
        rand(2),
        yes=[1, 0],
        yes_shape=[2],
    )


# ---- reductions ----

AXES = [
    ((5,), None),
    ((5,), [0]),
    ((), None),
    ((3, 4), None),
    ((3, 4), [0]),
    ((3, 4), [1]),
    ((3, 4), [-1, 0]),
    ((2, 3, 4), [0]),
    ((2, 3, 4), [1]),
    ((2, 3, 4), [-1]),
    ((2, 3, 4), [0, 2]),
    ((2, 3, 4), [1, 2]),
    ((2, 1, 3), [1]),
    ((2, 2, 3, 2), [1, 3]),
    ((2, 2, 3, 2), [0, 1, 2]),
    ((2, 1, 2, 2, 1, 2), [0, 3, 5]),
]
NORMS = (1, 2, 3, 0.5, -1, math.inf, -math.inf, 0)


def reductions():
    family("reductions")
    for shape, axes in AXES:
        dims = list(range(len(shape))) if axes is None else axes
        product = lambda x, keep: prod_over(x, dims, keep)
        for keep in (False, True):
            o = {"axes": axes, "keep": int(keep)}
            if axes is None and keep:
                continue
            x = rand(*shape, gap=1 / 16)
            case("sum", lambda x: torch.sum(x, dims, keep) if dims else x + 0, x, **o)
            case("mean", lambda x: torch.mean(x, dims, keep) if dims else x + 0, x, **o)
            case("prod", lambda x: product(x, keep), x, **o)
            d = distinct(*shape)
            case("max", lambda x: torch.amax(x, dims, keep), d, **o)
            case("min", lambda x: torch.amin(x, dims, keep), d, **o)
            case("max", lambda x: torch.amax(x, dims, keep), torch.round(x), **o)
            case("min", lambda x: torch.amin(x, dims, keep), torch.round(x), **o)
            case("logsumexp", lambda x: torch.logsumexp(x, dims, keep) if dims else x + 0, x, **o)
            for p in NORMS:
                case(
                    "vector_norm",
                    lambda x: torch.linalg.vector_norm(x, p, dims, keep),
                    d if abs(p) == math.inf else x,
                    **o,
                    p=str(p)
                )
            n = math.prod(shape[i] for i in dims)
            for correction in (0, 1):
                if n > max(1, correction):
                    case(
                        "variance",
                        lambda x: torch.var(x, dims, correction=correction, keepdim=keep),
                        x,
                        **o,
                        correction=correction
                    )
                    case(
                        "std",
                        lambda x: torch.std(x, dims, correction=correction, keepdim=keep),
                        x,
                        **o,
                        correction=correction
                    )
    zeros = torch.tensor([[0, 2.0, 0], [0, 1, 3], [4, 5, 6]])
    for axes in (None, [0], [1]):
        dims = [0, 1] if axes is None else axes
        case("prod", lambda x: prod_over(x, dims, False), zeros, axes=axes, keep=0)
        case(
            "vector_norm",
            lambda x: torch.linalg.vector_norm(x, 2, dims),
            zeros * 0,
            axes=axes,
            keep=0,
            p="2",
        )
    for shape, axes in (((2, 0, 3), [1]), ((0,), [0]), ((0, 2), [1]), ((2, 0), None)):
        dims = list(range(len(shape))) if axes is None else axes
        x = rand(*shape)
        case("sum", lambda x: torch.sum(x, dims), x, axes=axes, keep=0)
        values("mean", lambda x: torch.mean(x, dims), x, axes=axes, keep=0)
        case("prod", lambda x: prod_over(x, dims, False), x, axes=axes, keep=0)
    case(
        "logsumexp",
        lambda x: torch.logsumexp(x, 1),
        torch.tensor([[900.0, 901], [-900, -902]]),
        axes=[1],
        keep=0,
    )
    values(
        "logsumexp",
        lambda x: torch.logsumexp(x, 1),
        torch.tensor([[math.inf, 1], [-math.inf, -math.inf]]),
        axes=[1],
        keep=0,
    )
    for shape in ((5,), (1,), (3, 4), (2, 3, 4), (2, 1, 3), (2, 2, 2, 3)):
        for axis in range(-1, len(shape) - 1):
            for exclusive, reverse in itertools.product((0, 1), (0, 1)):
                for op, fn, neutral in (("cumsum", torch.cumsum, 0), ("cumprod", torch.cumprod, 1)):
                    case(
                        op,
                        lambda x: scan(x, fn, axis, exclusive, reverse, neutral),
                        rand(*shape, gap=1 / 8),
                        axis=axis,
                        exclusive=exclusive,
                        reverse=reverse,
                    )
            x = distinct(*shape)
            for op, fn in (("argmax", torch.argmax), ("argmin", torch.argmin)):
                values(op, lambda x: fn(x, axis), x, axis=axis)
            for descending in (0, 1):
                case(
                    "sort",
                    lambda x: torch.sort(x, dim=axis, descending=bool(descending), stable=True)[0],
                    x,
                    axis=axis,
                    descending=descending,
                )
                tied = torch.round(x / 2)
                values(
                    "sort_order",
                    lambda x: (
                        torch.sort(x, dim=axis, descending=bool(descending), stable=True)[
                            1
                        ].double()
                        if not descending
                        else order_descending(x, axis)
                    ),
                    tied,
                    axis=axis,
                    descending=descending,
                )
            for k in range(1, min(3, shape[axis]) + 1):
                for smallest in (0, 1):
                    case(
                        "topk",
                        lambda x: torch.topk(x, k, axis, not smallest)[0],
                        x,
                        axis=axis,
                        k=k,
                        smallest=smallest,
                    )
    case(
        "cumprod",
        lambda x: torch.cumprod(x, 0),
        torch.tensor([2.0, 0, 3, 0, 5]),
        axis=0,
        exclusive=0,
        reverse=0,
    )
    case(
        "cumprod",
        lambda x: torch.cumprod(x, 0),
        torch.tensor([2.0, 3, 0, 5]),
        axis=0,
        exclusive=0,
        reverse=0,
    )


def prod_over(x, dims, keep):
    for d in sorted((d % max(1, x.dim()) for d in dims), reverse=True):
        x = torch.prod(x, d, keep)
    return x + 0 if not dims else x


def order_descending(x, axis):
    """Equals in their order, largest first."""
    return torch.sort(-x, dim=axis, stable=True)[1].double()


def scan(x, fn, axis, exclusive, reverse, neutral):
    if reverse:
        x = torch.flip(x, [axis])
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), neutral)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    y = fn(x, axis)
    return torch.flip(y, [axis]) if reverse else y
