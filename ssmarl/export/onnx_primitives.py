"""JAX primitives as ONNX nodes: arithmetic, comparisons, shapes, reductions, products.

A rule takes the builder, the equation and the names of its inputs, and returns the name of its
output (a list, where there are several). `onnx_indexing.py` has the rules that read and write
parts of arrays, `onnx_model.py` the walk through all equations.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn

from ssmarl.core.errors import InputError
from ssmarl.export.onnx_builder import Builder

Rule = Callable[..., Any]

DIRECT = {
    "abs": "Abs",
    "add": "Add",
    "add_any": "Add",
    "and": "And",
    "copy": "Identity",
    "cos": "Cos",
    "div": "Div",
    "eq": "Equal",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "stop_gradient": "Identity",
    "sub": "Sub",
    "tanh": "Tanh",
}
"""Primitives that are one node without attributes."""

REDUCTIONS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}


def output(equation: JaxprEqn) -> Any:
    """The only output of an equation."""
    (out,) = equation.outvars
    return out


def dtype_of(variable: Any) -> Any:
    """Its element type."""
    return variable.aval.dtype


def shape_of(variable: Any) -> tuple:
    """Its shape; sizes are integers or symbolic."""
    return tuple(variable.aval.shape)


def onnx_type(dtype: Any) -> int:
    """The number of an element type."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _not_equal(build: Builder, equation: JaxprEqn, one: str, other: str) -> str:
    return build.add("Not", build.add("Equal", one, other))


def _integer_pow(build: Builder, equation: JaxprEqn, x: str) -> str:
    power = equation.params["y"]
    if power == 2:
        return build.add("Mul", x, x)
    return build.add("Pow", x, build.constant(power, dtype_of(output(equation))))


def _square(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Mul", x, x)


def _rsqrt(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Reciprocal", build.add("Sqrt", x))


def _remainder(build: Builder, equation: JaxprEqn, one: str, other: str) -> str:
    """With the sign of the dividend, as in C."""
    return build.add("Mod", one, other, fmod=1)


def _is_finite(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Not", build.add("Or", build.add("IsInf", x), build.add("IsNaN", x)))


def _select(build: Builder, equation: JaxprEqn, which: str, *cases: str) -> str:
    if len(cases) != 2 or dtype_of(equation.invars[0]) != np.bool_:
        raise InputError("onnx: select_n has a rule for two cases only")
    if dtype_of(equation.invars[1]) == np.bool_:  # onnxruntime has no Where of booleans
        false = build.add("And", build.add("Not", which), cases[0])
        return build.add("Or", build.add("And", which, cases[1]), false)
    return build.add("Where", which, cases[1], cases[0])


def _clamp(build: Builder, equation: JaxprEqn, low: str, x: str, high: str) -> str:
    return build.add("Min", build.add("Max", x, low), high)


def _convert(build: Builder, equation: JaxprEqn, x: str) -> str:
    if dtype_of(equation.invars[0]) == dtype_of(output(equation)):
        return x
    return build.add("Cast", x, to=onnx_type(dtype_of(output(equation))))


def _broadcast(build: Builder, equation: JaxprEqn, x: str, *sizes: str) -> str:
    """Axes of length 1 in the new places, then expanded."""
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    before = shape_of(equation.invars[0])
    added = [axis for axis in range(len(shape)) if axis not in places]
    if added:
        x = build.add("Unsqueeze", x, build.integers(*added))
    placed = [1] * len(shape)
    for place, size in zip(places, before, strict=True):
        placed[place] = size
    same = all(str(one) == str(two) for one, two in zip(placed, shape, strict=True))
    return x if same else build.add("Expand", x, build.shape(shape))


def _reshape(build: Builder, equation: JaxprEqn, x: str, *sizes: str) -> str:
    return build.add("Reshape", x, build.shape(equation.params["new_sizes"]), allowzero=1)


def _squeeze(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Squeeze", x, build.integers(*equation.params["dimensions"]))


def _expand_dims(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Unsqueeze", x, build.integers(*equation.params["dimensions"]))


def _transpose(build: Builder, equation: JaxprEqn, x: str) -> str:
    return build.add("Transpose", x, perm=list(equation.params["permutation"]))


def _concatenate(build: Builder, equation: JaxprEqn, *parts: str) -> str:
    return build.add("Concat", *parts, axis=equation.params["dimension"])


def _stack(build: Builder, equation: JaxprEqn, *parts: str) -> str:
    axis = int(equation.params["axis"])
    axes = build.integers(axis)
    return build.add("Concat", *(build.add("Unsqueeze", part, axes) for part in parts), axis=axis)


def _split(build: Builder, equation: JaxprEqn, x: str) -> list[str]:
    sizes = tuple(equation.params["sizes"])
    return build.add_many(
        "Split", (x, build.shape(sizes)), len(sizes), axis=equation.params["axis"]
    )


def _iota(build: Builder, equation: JaxprEqn, *sizes: str) -> str:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    end = build.add("Squeeze", build.size(shape[axis]), build.integers(0))
    line = build.add("Range", build.constant(0, np.int64), end, build.constant(1, np.int64))
    line = build.add("Cast", line, to=onnx_type(dtype_of(output(equation))))
    others = [other for other in range(len(shape)) if other != axis]
    if others:
        line = build.add("Unsqueeze", line, build.integers(*others))
    return build.add("Expand", line, build.shape(shape))


def _dim_as_value(build: Builder, equation: JaxprEqn) -> str:
    size = build.add("Squeeze", build.size(equation.params["dim"]), build.integers(0))
    return build.add("Cast", size, to=onnx_type(dtype_of(output(equation))))


def _reduce(kind: str) -> Rule:
    def rule(build: Builder, equation: JaxprEqn, x: str) -> str:
        return build.add(kind, x, build.integers(*equation.params["axes"]), keepdims=0)

    return rule


def _reduce_flags(kind: str) -> Rule:
    """Reductions of flags, as those of the numbers 0 and 1."""

    def rule(build: Builder, equation: JaxprEqn, x: str) -> str:
        numbers = build.add("Cast", x, to=onnx_type(np.int32))
        axes = build.integers(*equation.params["axes"])
        found = build.add(kind, numbers, axes, keepdims=0)
        return build.add("Cast", found, to=onnx_type(np.bool_))

    return rule


def _arg(kind: str) -> Rule:
    def rule(build: Builder, equation: JaxprEqn, x: str) -> str:
        (axis,) = equation.params["axes"]
        found = build.add(kind, x, axis=axis, keepdims=0)
        return build.add("Cast", found, to=onnx_type(equation.params["index_dtype"]))

    return rule


def _top_k(build: Builder, equation: JaxprEqn, x: str) -> list[str]:
    """The largest along the last axis; equal values by index, in JAX and in ONNX."""
    axis = len(shape_of(equation.invars[0])) - 1
    if equation.params.get("axis", axis) != axis:
        raise InputError("onnx: top_k has a rule for the last axis only")
    values, found = build.add_many("TopK", (x, build.integers(equation.params["k"])), 2, axis=axis)
    return [values, build.add("Cast", found, to=onnx_type(dtype_of(equation.outvars[1])))]


def _dot(build: Builder, equation: JaxprEqn, one: str, other: str) -> str:
    """Last axis of the first with the first axis of the second, which is a matrix or vector."""
    (contracted, batched) = equation.params["dimension_numbers"]
    last = len(shape_of(equation.invars[0])) - 1
    if tuple(map(tuple, contracted)) != ((last,), (0,)) or any(batched):
        raise InputError(f"onnx: a product over the axes {contracted} has no rule")
    return build.add("MatMul", one, other)


PRIMITIVES: dict[str, Rule] = {
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "concatenate": _concatenate,
    "convert_element_type": _convert,
    "dim_as_value": _dim_as_value,
    "dot_general": _dot,
    "expand_dims": _expand_dims,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "is_finite": _is_finite,
    "ne": _not_equal,
    "reduce_and": _reduce_flags("ReduceMin"),
    "reduce_or": _reduce_flags("ReduceMax"),
    "rem": _remainder,
    "reshape": _reshape,
    "rsqrt": _rsqrt,
    "select_n": _select,
    "split": _split,
    "square": _square,
    "squeeze": _squeeze,
    "stack": _stack,
    "top_k": _top_k,
    "transpose": _transpose,
    **{name: _reduce(kind) for name, kind in REDUCTIONS.items()},
    **{
        name: lambda build, equation, *inputs, kind=kind: build.add(kind, *inputs)
        for name, kind in DIRECT.items()
    },
}
"""By name of the primitive."""
