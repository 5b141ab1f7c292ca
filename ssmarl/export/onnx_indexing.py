"""Reading and writing parts of arrays: JAX's slice, gather, scatter and pad as ONNX nodes.

JAX has one gather for every form of indexing. Three forms occur here:

    x[:, 0, 2:4]                 indices known in advance          Slice, Squeeze
    x[index]                     rows by index                     Gather
    take_along_axis(x, index)    one element per row and index     GatherElements
"""

from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn

from ssmarl.core.errors import InputError
from ssmarl.export.onnx_builder import Builder
from ssmarl.export.onnx_primitives import Rule, output, shape_of


def _slice(build: Builder, equation: JaxprEqn, x: str) -> str:
    starts, ends = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(starts)
    before = shape_of(equation.invars[0])
    cut = [
        axis
        for axis, size in enumerate(before)
        if str(starts[axis]) != "0" or str(ends[axis]) != str(size) or steps[axis] != 1
    ]
    if not cut:
        return x
    return build.add(
        "Slice",
        x,
        build.shape(tuple(starts[axis] for axis in cut)),
        build.shape(tuple(ends[axis] for axis in cut)),
        build.integers(*cut),
        build.integers(*(steps[axis] for axis in cut)),
    )


def _gather(
    build: Builder, equation: JaxprEqn, x: str, index: str, *, known: np.ndarray | None = None
) -> str:
    """One of the three forms; `known`: the indices, where they are constants."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    if known is not None and known.ndim == 1 and not numbers.operand_batching_dims:
        return _static_part(build, equation, x, known)
    before = shape_of(equation.invars[0])
    if len(numbers.start_index_map) != 1 or numbers.collapsed_slice_dims != numbers.start_index_map:
        raise InputError("onnx: indexing several axes at once has no rule")
    (axis,) = numbers.start_index_map
    whole = [str(sizes[other]) == str(size) for other, size in enumerate(before)]
    index = build.add("Squeeze", index, build.integers(-1))
    if not numbers.operand_batching_dims:
        if not all(whole[other] for other in range(len(before)) if other != axis):
            raise InputError("onnx: indexing parts of rows has no rule")
        return _in_order(equation, axis, build.add("Gather", x, index, axis=axis))
    return _along_axis(build, equation, x, index, axis)


def _static_part(build: Builder, equation: JaxprEqn, x: str, known: np.ndarray) -> str:
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    starts = dict(zip(numbers.start_index_map, map(int, known), strict=True))
    cut = sorted(starts)
    part = build.add(
        "Slice",
        x,
        build.integers(*(starts[axis] for axis in cut)),
        build.shape(tuple(starts[axis] + sizes[axis] for axis in cut)),
        build.integers(*cut),
    )
    dropped = numbers.collapsed_slice_dims
    return build.add("Squeeze", part, build.integers(*dropped)) if dropped else part


def _in_order(equation: JaxprEqn, axis: int, found: str) -> str:
    """Gather puts the axes of the index in the place of the axis that they index; so must JAX."""
    numbers = equation.params["dimension_numbers"]
    rank = len(shape_of(output(equation)))
    index_rank = len(shape_of(equation.invars[1])) - 1
    expected = tuple(place for place in range(rank) if not axis <= place < axis + index_rank)
    if tuple(numbers.offset_dims) != expected:
        raise InputError("onnx: indexing that moves axes has no rule")
    return found


def _along_axis(build: Builder, equation: JaxprEqn, x: str, index: str, axis: int) -> str:
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    before = shape_of(equation.invars[0])
    batched = numbers.operand_batching_dims
    free = [other for other in range(len(before)) if other not in (axis, *batched)]
    order = dict(zip(batched, numbers.start_indices_batching_dims, strict=True))
    rank = len(shape_of(equation.invars[1])) - 1
    # The axes of the index that belong to each axis of x, in the same order, free ones left out.
    expected = [other for other in range(len(before)) if other not in free]
    places = [order.get(other, -1) for other in expected]
    left = [place for place in range(rank) if place not in order.values()]
    if len(left) != 1 or rank != len(expected):
        raise InputError("onnx: indexing along several axes has no rule")
    places[expected.index(axis)] = left[0]
    if places != list(range(rank)) or list(numbers.offset_dims) != free:
        raise InputError("onnx: indexing that moves axes has no rule")
    if free:  # the same index for all of them
        index = build.add("Unsqueeze", index, build.integers(*free))
        wide = [1] * len(before)
        for other in free:
            if str(sizes[other]) != str(before[other]):
                raise InputError("onnx: indexing parts of rows has no rule")
            wide[other] = before[other]
        index = build.add("Expand", index, build.shape(tuple(wide)))
    return build.add("GatherElements", x, index, axis=axis)


def _scatter(
    build: Builder,
    equation: JaxprEqn,
    x: str,
    index: str,
    update: str,
    *,
    known: np.ndarray | None = None,
) -> str:
    """x.at[…].set(update) with indices known in advance: a window is replaced."""
    if known is None or known.ndim != 1 or equation.params["update_jaxpr"] is not None:
        raise InputError("onnx: writing to places known only at run time has no rule")
    numbers = equation.params["dimension_numbers"]
    before, window = shape_of(equation.invars[0]), list(shape_of(equation.invars[2]))
    inserted = numbers.inserted_window_dims
    if tuple(numbers.update_window_dims) != tuple(range(len(window))):
        raise InputError("onnx: writing that moves axes has no rule")
    if inserted:
        update = build.add("Unsqueeze", update, build.integers(*inserted))
        for axis in inserted:
            window.insert(axis, 1)
    starts = dict.fromkeys(range(len(before)), 0)
    starts |= dict(zip(numbers.scatter_dims_to_operand_dims, map(int, known), strict=True))
    first, last, inside = [], [], np.ones((1,) * len(before), bool)
    for axis, size in enumerate(before):
        if str(window[axis]) == str(size):
            first.append(0)
            last.append(0)
            continue
        first.append(starts[axis])
        last.append(size - starts[axis] - window[axis])
        place = np.arange(size)
        own = (place >= starts[axis]) & (place < starts[axis] + window[axis])
        inside = inside & own.reshape([-1 if other == axis else 1 for other in range(len(before))])
    padded = build.add("Pad", update, build.integers(*first, *last))
    return build.add("Where", build.constant(inside), padded, x)


def _pad(build: Builder, equation: JaxprEqn, x: str, value: str) -> str:
    low, high, between = zip(*equation.params["padding_config"], strict=True)
    if any(between) or min(*low, *high) < 0:
        raise InputError("onnx: padding between elements has no rule")
    return build.add("Pad", x, build.integers(*map(int, low), *map(int, high)), value)


INDEXING: dict[str, Rule] = {"gather": _gather, "pad": _pad, "scatter": _scatter, "slice": _slice}
"""By name of the primitive."""

NEEDS_KNOWN: dict[str, Any] = {"gather": 1, "scatter": 1}
"""Primitives whose rule asks for the value of an input, where it is a constant."""
