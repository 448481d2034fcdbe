"""A TFLite file in LiteRT, in a process of its own: some damaged files crash the interpreter.

The module is also that process: ``python -m hetsched.runtime.litert_oracle MODEL FEEDS.npz OUT.npz`` runs the model once and
writes every tensor by its index in the file.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import shortened
from hetsched.graph import Graph, Op

Array = npt.NDArray[Any]
_LIMIT_S = 600.0
_EXCEPTION = re.compile(r"^[A-Za-z_.]+(Error|Exception): ")


def litert_tensors(model: Path, graph: Graph, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """Tensors that LiteRT computes, by this project's names and in its order of axes; or none, and why.

    A model with integer weights on float activations is not run: LiteRT rounds such activations to 8 bits on the way.
    """
    if find_spec("ai_edge_litert") is None:
        return {}, "LiteRT is not installed"
    if any(_is_hybrid(graph, op) for op in graph.ops):
        return {}, "LiteRT rounds the activations of dynamic-range models"
    from hetsched.frontends.tflite_frontend import lowered

    builder, _, _ = lowered(model, graph.dims, {})
    stored = builder.graph.tensors
    with tempfile.TemporaryDirectory(prefix="hetsched-") as folder:
        given, out = Path(folder) / "feeds.npz", Path(folder) / "out.npz"
        np.savez(given, **{str(i): feeds[stored[i].name] for i in builder.graph.inputs})  # type: ignore[arg-type]
        command = [sys.executable, "-m", "hetsched.runtime.litert_oracle", str(model), str(given), str(out)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)  # noqa: S603
            with np.load(out, allow_pickle=False) as archive:
                values = {int(k): archive[k] for k in archive.files}
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            return {}, f"LiteRT cannot run it: {_reason(e)}"
    known = {v.name: values[i].transpose(v.order) for i, v in builder.values.items() if i in values and values[i].ndim == len(v.order)}
    known.update((stored[i].name, values[i]) for i in builder.graph.outputs if i in values)
    return known, ""


def _reason(error: Exception) -> str:
    """Why the process failed, in words: what its interpreter said last, without the names of the exceptions around it."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took longer than {_LIMIT_S:.0f} s"
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error) or type(error).__name__
    if error.returncode < 0:
        return "its interpreter crashed"
    said = [line.strip() for line in error.stderr.decode(errors="replace").splitlines() if line.strip()]
    reason = next((line for line in reversed(said) if _EXCEPTION.match(line)), said[-1] if said else "")
    return shortened(_EXCEPTION.sub("", reason).rstrip("."), 120) or f"its process ended with {error.returncode}"


def _is_hybrid(graph: Graph, op: Op) -> bool:
    if len(op.inputs) < 2 or not all(op.inputs[:2]):
        return False
    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    return x.dtype.is_float and not x.is_constant and w.is_constant and w.quantization is not None


def main(model: str, feeds: str, out: str) -> None:
    """Run ``model`` once on the arrays of ``feeds``, named by tensor index, and write every tensor to ``out``."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    lite = Interpreter(
        model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, experimental_preserve_all_tensors=True
    )
    with np.load(feeds, allow_pickle=False) as arrays:
        for d in lite.get_input_details():
            lite.resize_tensor_input(d["index"], arrays[str(d["index"])].shape)
        lite.allocate_tensors()
        for d in lite.get_input_details():
            lite.set_tensor(d["index"], arrays[str(d["index"])])
    lite.invoke()
    values: dict[str, Array] = {}
    for d in lite.get_tensor_details():
        try:
            values[str(d["index"])] = lite.get_tensor(d["index"])
        except ValueError:
            continue  # a tensor without memory: a constant that no operator reads, or a resource
    np.savez(out, **values)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
