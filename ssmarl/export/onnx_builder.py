"""A graph of ONNX nodes under construction: constants, sizes known only at run time, nodes."""

import ast
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ssmarl.core.errors import InputError

OPSET = 18
"""Version of the operators: reductions take their axes as inputs."""
IR_VERSION = 10
"""Of the file format; runtimes since 2024 read it."""


class Builder:
    """Nodes and constants so far. Values are names of tensors."""

    def __init__(self, outer: "Builder | None" = None) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[tuple, tuple[str, np.ndarray]] = outer.constants if outer else {}
        self.sizes: dict[str, str] = dict(outer.sizes) if outer else {}
        """Symbol of a size → scalar tensor (int64) that holds it."""
        self._shapes: dict[tuple, str] = dict(outer._shapes) if outer else {}
        self._numbers: Iterator[int] = outer._numbers if outer else itertools.count()

    def body(self) -> "Builder":
        """A builder of the nodes of a loop's body, which reads everything outside of it."""
        return Builder(self)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output; returns the output's name."""
        return self.add_many(kind, inputs, 1, **attributes)[0]

    def add_many(
        self, kind: str, inputs: tuple[str, ...], outputs: int, **attributes: Any
    ) -> list[str]:
        """A node with several outputs; returns their names."""
        from onnx import helper

        names = [self.fresh(kind) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def fresh(self, stem: str) -> str:
        """A new name."""
        return f"{stem}_{next(self._numbers)}"

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A constant tensor; equal ones are stored once."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = (self.fresh("constant"), array)
        return self.constants[key][0]

    def integers(self, *values: int) -> str:
        """A constant vector of integers, as axes and bounds are given."""
        return self.constant(values, np.int64)

    def size(self, dim: Any) -> str:
        """A size as a vector of one integer: a constant, or an expression of symbols."""
        if isinstance(dim, int):
            return self.integers(dim)
        return self.add("Reshape", self._expression(ast.parse(str(dim)).body[0]), self.integers(1))

    def shape(self, dims: tuple) -> str:
        """A shape as a vector of integers."""
        if all(isinstance(dim, int) for dim in dims):
            return self.integers(*dims)
        key = tuple(str(dim) for dim in dims)
        if key not in self._shapes:
            self._shapes[key] = self.add("Concat", *(self.size(dim) for dim in dims), axis=0)
        return self._shapes[key]

    def _expression(self, node: Any) -> str:
        """Sums and products of symbols and whole numbers."""
        kinds = {ast.Add: "Add", ast.Mult: "Mul", ast.Sub: "Sub"}
        match node:
            case ast.Expr(value=inner):
                return self._expression(inner)
            case ast.Name(id=symbol) if symbol in self.sizes:
                return self.sizes[symbol]
            case ast.Constant(value=int(value)):
                return self.constant(value, np.int64)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.add("Neg", self._expression(inner))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in kinds:
                return self.add(kinds[type(op)], self._expression(left), self._expression(right))
            case _:
                raise InputError(f"onnx: a size of the form {ast.unparse(node)} has no rule")
