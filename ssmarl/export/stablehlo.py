"""A control step as a StableHLO artefact of `jax.export`, and back.

The artefact is a function of dictionaries of arrays, by the names of `Step.inputs`. It can be
loaded by any JAX of the compatibility window (six months), without this package and its weights.
"""

import jax
from jax import export
from jaxtyping import Array

from ssmarl.export.signature import Step

PLATFORMS = ("cpu", "cuda", "tpu")
"""On which the artefact runs."""


def stablehlo_artefact(step: Step) -> bytes:
    """The serialised function: dictionary of inputs → dictionary of outputs."""

    def function(inputs: dict[str, Array]) -> dict[str, Array]:
        results = step.function(*(inputs[name] for name in step.inputs))
        return dict(zip(step.outputs, results, strict=True))

    def build() -> bytes:
        exported = export.export(jax.jit(function), platforms=PLATFORMS)(step.inputs)
        return bytes(exported.serialize())

    return step.traced(build)


def load_artefact(content: bytes) -> export.Exported:
    """The function again: `load_artefact(content).call(inputs)`."""
    return export.deserialize(bytearray(content))
