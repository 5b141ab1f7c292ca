"""`ssmarl export`: a policy for runtimes without this package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ssmarl.core.errors import InputError
from ssmarl.core.files import write_atomically


@dataclass(frozen=True)
class Export:
    """Write a policy as ONNX or StableHLO: any number of agents, recurrent state in and out."""

    policy: Annotated[str, tyro.conf.Positional]
    """Run directory, policy file, or pretrained:NAME."""
    out: Path
    """File to write."""
    format: Literal["onnx", "stablehlo"] = "onnx"
    """onnx: for onnxruntime and others (extra: export). stablehlo: an artefact of jax.export."""
    deadlock_escape: bool = True
    """With the policy's deadlock escape, if it has one."""
    filter: str | None = None
    """certificate: behind the certified safety filter, for the world of the training."""
    precision: Literal["float32", "float64"] = "float32"
    """Of all numbers."""

    def run(self) -> None:
        """Load, convert, write."""
        from ssmarl.export.signature import ExportConfig, exported_step
        from ssmarl.policy.policy import load

        if self.filter not in (None, "certificate"):
            raise InputError(f"filter {self.filter!r}: only certificate is exported")
        config = ExportConfig(self.deadlock_escape, self.filter is not None, self.precision)
        step = exported_step(load(self.policy), config)
        if self.format == "onnx":
            try:
                import onnx  # noqa: F401
            except ImportError:
                raise InputError("onnx needs an extra: pip install 'ssmarl[export]'") from None
            from ssmarl.export.onnx_model import onnx_model

            content = onnx_model(step).SerializeToString()
        else:
            from ssmarl.export.stablehlo import stablehlo_artefact

            content = stablehlo_artefact(step)
        write_atomically(self.out, content)
        print(f"{self.format}: {self.out} ({len(content) / 1024:.0f} kB)")
        for name, spec in step.inputs.items():
            sizes = ", ".join(str(size) for size in spec.shape)
            start = f"  starts at {step.initial[name]:g}" if name in step.initial else ""
            print(f"  {name:22} {spec.dtype!s:8} [{sizes}]{start}")
        print(f"  → {', '.join(step.outputs)}")
