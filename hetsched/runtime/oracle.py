"""The oracle: every tensor of the user's own file, computed by ONNX Runtime without optimisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import CheckError, ModelError


def reference_tensors(model: Path, feeds: Mapping[str, npt.NDArray[Any]], wanted: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Values of those of ``wanted`` that the file's nodes write (others are left out), for one set of inputs.

    Symbolic dims are bound by the shapes of the feeds.

    Raises:
        CheckError: ONNX Runtime is not installed, or fails on the file.
        ModelError: the file cannot be read.
    """
    try:
        import onnxruntime as ort
    except ImportError as e:
        raise CheckError("checking needs ONNX Runtime: install hetsched[ort]") from e
    import onnx

    try:
        proto = onnx.load(model)
    except Exception as e:
        raise ModelError(f"the reference model {model} cannot be read: {e}") from e
    written = {o for node in proto.graph.node for o in node.output}
    outputs = [o.name for o in proto.graph.output]
    extra = [name for name in dict.fromkeys(wanted) if name in written and name not in outputs]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [n for n in (*outputs, *extra) if n in set(wanted)]
        inputs = {i.name for i in session.get_inputs()}
        values = session.run(names, {k: v for k, v in feeds.items() if k in inputs})
    except Exception as e:
        raise CheckError(f"ONNX Runtime cannot run the reference model {model}: {str(e).splitlines()[0]}") from e
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
