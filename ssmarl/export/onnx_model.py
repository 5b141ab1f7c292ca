"""A function of JAX as an ONNX model: the walk through its equations.

The function is traced with symbolic sizes. Equations of constants are evaluated now, calls are
inlined, loops with a known number of rounds become loops, and every other equation becomes nodes
by the rule of its primitive. Written here because jax2onnx 0.17 refuses to split along an axis of
symbolic size, which attention over groups of edges does.
"""

import json
from typing import Any

import jax
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,  # pyright: ignore[reportPrivateImportUsage]  (one with Jaxpr from JAX 0.12 on)
    Jaxpr,
    JaxprEqn,
    Literal,
)

from ssmarl.core.errors import InputError
from ssmarl.export.onnx_builder import IR_VERSION, OPSET, Builder
from ssmarl.export.onnx_indexing import INDEXING, NEEDS_KNOWN
from ssmarl.export.onnx_primitives import PRIMITIVES, dtype_of, onnx_type, shape_of
from ssmarl.export.signature import Step

RULES = PRIMITIVES | INDEXING
MAX_FOLDED = 1 << 16
"""Largest constant that is computed in advance, in elements."""

Value = str | np.ndarray
"""A tensor of the model by name, or a constant."""


def onnx_model(step: Step) -> Any:
    """The model of a control step (`onnx.ModelProto`)."""

    def build() -> Any:
        closed = jax.make_jaxpr(step.function)(*step.inputs.values())
        return build_model(closed, tuple(step.inputs), step.outputs, step.metadata)

    return step.traced(build)


def build_model(
    closed: ClosedJaxpr, inputs: tuple[str, ...], outputs: tuple[str, ...], metadata: dict
) -> Any:
    """The model of traced equations, with names for its inputs and outputs."""
    from onnx import checker, helper, numpy_helper

    build = Builder()
    _declare_sizes(build, closed, inputs)
    results = _walk(build, closed.jaxpr, closed.consts, list(inputs))
    for name, value in zip(outputs, results, strict=True):
        node = helper.make_node("Identity", [_name(build, value)], [name])
        build.nodes.append(node)

    nodes, constants = _used(build, outputs)

    def declared(name: str, aval: Any) -> Any:
        dims = [dim if isinstance(dim, int) else str(dim) for dim in aval.shape]
        return helper.make_tensor_value_info(name, onnx_type(aval.dtype), dims)

    graph = helper.make_graph(
        nodes,
        "step",
        [declared(name, aval) for name, aval in zip(inputs, closed.in_avals, strict=True)],
        [declared(name, aval) for name, aval in zip(outputs, closed.out_avals, strict=True)],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="ssmarl",
    )
    helper.set_model_props(model, {"ssmarl": json.dumps(metadata)})
    checker.check_model(model, full_check=True)
    return model


def _used(build: Builder, outputs: tuple[str, ...]) -> tuple[list, list]:
    """The nodes and constants on which the outputs depend."""
    needed, nodes = set(outputs), []
    for node in reversed(build.nodes):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(_read_by(node))
    return nodes[::-1], [item for item in build.constants.values() if item[0] in needed]


def _read_by(node: Any) -> set[str]:
    """The tensors that a node reads, in the bodies of loops too."""
    bodies = [item.g for item in node.attribute if item.HasField("g")]
    return set(node.input).union(*(_read_by(inner) for body in bodies for inner in body.node))


def _declare_sizes(build: Builder, closed: ClosedJaxpr, inputs: tuple[str, ...]) -> None:
    """The symbols of sizes, read from the inputs' shapes at run time."""
    for name, aval in zip(inputs, closed.in_avals, strict=True):
        for axis, dim in enumerate(getattr(aval, "shape", ())):
            symbol = str(dim)
            if not isinstance(dim, int) and symbol.isidentifier() and symbol not in build.sizes:
                shape = build.add("Shape", name)
                build.sizes[symbol] = build.add(
                    "Gather", shape, build.constant(axis, np.int64), axis=0
                )


def _walk(build: Builder, jaxpr: Jaxpr, consts: Any, arguments: list[Any]) -> list[Value]:
    """The values of a jaxpr's outputs; its equations' nodes are added."""
    known: dict[Any, Value] = {}

    def read(atom: Any) -> Value:
        constant = isinstance(atom, Literal)
        return np.asarray(atom.val, dtype_of(atom)) if constant else known[atom]

    known |= zip(jaxpr.constvars, (np.asarray(value) for value in consts), strict=True)
    known |= zip(jaxpr.invars, arguments, strict=True)
    for equation in jaxpr.eqns:
        results = _equation(build, equation, [read(atom) for atom in equation.invars])
        known |= zip(equation.outvars, results, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _equation(build: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    name = equation.primitive.name
    inner = _called(equation)
    if name == "scan":
        return _loop(build, equation, values)
    if name == "optimization_barrier":  # of JAX's compiler only
        return values
    if inner is not None:
        return _walk(build, inner.jaxpr, inner.consts, values)
    folded = _folded(equation, values)
    if folded is not None:
        return folded
    if name not in RULES:
        raise InputError(f"onnx: the operation {name} has no rule (use --format stablehlo)")
    extra = {}
    if name in NEEDS_KNOWN:
        index = values[NEEDS_KNOWN[name]]
        extra["known"] = index if isinstance(index, np.ndarray) else None
    result = RULES[name](build, equation, *(_name(build, value) for value in values), **extra)
    return result if isinstance(result, list) else [result]


def _called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The function that an equation calls, if it only calls one."""
    for name in ("jaxpr", "call_jaxpr", "call"):
        inner = equation.params.get(name)
        if isinstance(inner, ClosedJaxpr) and equation.primitive.name != "while":
            return inner
    return None


def _folded(equation: JaxprEqn, values: list[Value]) -> list[Value] | None:
    """The results of an equation of constants."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return None
    shapes = [shape_of(out) for out in equation.outvars]
    if not all(isinstance(dim, int) for shape in shapes for dim in shape):
        return None
    if equation.primitive.name == "dim_as_value" or max(map(np.prod, shapes)) > MAX_FOLDED:
        return None
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*map(jax.numpy.asarray, values), **equation.params)
    several = equation.primitive.multiple_results
    return [np.asarray(result) for result in (results if several else [results])]


def _loop(build: Builder, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    """A loop with a known number of rounds that carries values from round to round."""
    from onnx import TensorProto, helper

    params, inner = equation.params, equation.params["jaxpr"]
    consts, carries = _loop_sizes(params)
    if len(inner.out_avals) != carries or params["reverse"]:
        raise InputError("onnx: a loop that collects values has no rule (use --format stablehlo)")
    body = build.body()
    number, go_on = body.fresh("round"), body.fresh("condition")
    avals = inner.in_avals[consts : consts + carries]
    names = [body.fresh("carry") for _ in avals]
    rows = [body.add("Gather", _name(build, value), number) for value in values[consts + carries :]]
    after = _walk(body, inner.jaxpr, inner.consts, [*values[:consts], *names, *rows])
    results = [body.add("Identity", _name(body, value)) for value in after]
    still = body.add("Identity", go_on)

    def declared(name: str, aval: Any) -> Any:
        return helper.make_tensor_value_info(name, onnx_type(aval.dtype), [None] * aval.ndim)

    graph = helper.make_graph(
        body.nodes,
        body.fresh("body"),
        [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
            *map(declared, names, avals),
        ],
        [
            helper.make_tensor_value_info(still, TensorProto.BOOL, []),
            *map(declared, results, avals),
        ],
    )
    start = [_name(build, value) for value in values[consts : consts + carries]]
    rounds = build.constant(params["length"], np.int64)
    inputs = (rounds, build.constant(True), *start)
    return list(build.add_many("Loop", inputs, carries, body=graph))


def _loop_sizes(params: dict[str, Any]) -> tuple[int, int]:
    """Number of constants, and of values carried from round to round."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()  # from JAX 0.12 on
    return len(constants), len(carried)


def _name(build: Builder, value: Value) -> str:
    return value if isinstance(value, str) else build.constant(value)
