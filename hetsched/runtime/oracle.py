"""The oracle: every tensor of the user's own file, computed by somebody else.

An ONNX file runs in ONNX Runtime without optimisations. Any other runs in the reference executor, unfused; a TFLite file
also in LiteRT where that is installed, and what LiteRT computed counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import CheckError, HetschedError, ModelError
from hetsched.graph import Graph
from hetsched.passes.derived import base_of, derived

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Tensors by name, and who computed them."""

    values: Mapping[str, Array]
    oracle: str


def reference_of(graph: Graph, model: Path | None, feeds: Mapping[str, Array], wanted: Sequence[str]) -> Reference:
    """Values of those of ``wanted`` that the model has (others are left out), for one set of inputs.

    Args:
        graph: what ran; where ``model`` is None, its own unfused operators are the reference.
        model: the file.
        feeds: every graph input by name.
        wanted: tensor names.

    Raises:
        CheckError: nothing can run the file: ONNX Runtime is not installed, or an operator has no reference.
        ModelError: the file cannot be read.
    """
    from hetsched.frontends import format_of

    kind = "" if model is None else format_of(model)
    bases = [b for n in wanted if n in graph.tensors and (b := base_of(n)) != n]
    if model is not None and kind == "onnx":
        values = reference_tensors(model, feeds, (*wanted, *bases), graph.dims)
        return Reference(_with_derived(graph, values, wanted), "ONNX Runtime")
    values = executed(_as_in_the_file(graph, model), feeds)
    oracle = "the reference executor"
    if model is not None and kind == "tflite":
        from hetsched.runtime.litert_oracle import litert_tensors

        theirs, why = litert_tensors(model, graph, feeds)
        values.update((n, v) for n, v in theirs.items() if n in values and v.shape == values[n].shape)
        oracle = "LiteRT" if theirs else f"the reference executor ({why})"
    return Reference(_with_derived(graph, values, wanted), oracle)


def _with_derived(graph: Graph, values: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
    """Those of ``wanted`` that are among ``values``, or that a pass made of one of them."""
    found: dict[str, Array | None] = {}
    for name in dict.fromkeys(wanted):
        base = values.get(base_of(name))
        found[name] = values.get(name) if name in values or base is None or name not in graph.tensors else derived(graph, name, base)
    return {name: value for name, value in found.items() if value is not None}


def _as_in_the_file(graph: Graph, model: Path | None) -> Graph:
    from hetsched.frontends import load
    from hetsched.passes import unfuse

    return unfuse(graph) if model is None else load(model, graph.dims)


def executed(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Every activation, by the reference executor.

    Raises:
        CheckError: an operator has no reference, or cannot be evaluated.
    """
    from hetsched.reference import run

    try:
        return run(graph, feeds)
    except HetschedError as e:
        raise CheckError(f"the reference executor cannot run {graph.name!r}: {e}") from e


def whole_graph(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a graph in one piece, with its quantized operators in Q/DQ form, by ONNX Runtime without optimisations.

    Raises:
        CheckError: ONNX Runtime is not installed, or fails on the graph.
        UnsupportedModelError: an operator is not one of ONNX's.
    """
    try:
        import onnxruntime as ort
    except ImportError as e:
        raise CheckError("golden outputs are computed by ONNX Runtime: install hetsched[ort]") from e
    from hetsched.lowering.onnx_segment import ends_of, onnx_model

    ends = ends_of(graph, graph.ops)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(onnx_model(graph, graph.ops, ends), options, providers=["CPUExecutionProvider"])
        found = dict(zip(ends.outputs, session.run(list(ends.outputs), {n: feeds[n] for n in ends.inputs}), strict=True))
    except HetschedError:
        raise
    except Exception as e:
        raise CheckError(f"ONNX Runtime cannot run {graph.name!r}: {str(e).splitlines()[0]}") from e
    return {n: np.asarray(found[n] if n in found else feeds[n]) for n in graph.outputs}


def reference_tensors(
    model: Path, feeds: Mapping[str, Array], wanted: Sequence[str], bound: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Values of those of ``wanted`` that an ONNX file's nodes write (others are left out), for one set of inputs.

    Symbolic dims are bound by the shapes of the feeds; ``bound`` has the values of inputs that the loader made constants.

    Raises:
        CheckError: ONNX Runtime is not installed, or fails on the file.
        ModelError: the file cannot be read.
    """
    return OnnxOracle(model, wanted, bound).run(feeds)


class OnnxOracle:
    """An ONNX file in ONNX Runtime, without optimisations, with chosen tensors as outputs.

    Args:
        model: the file.
        wanted: names of the chosen tensors.
        bound: values of whole-number inputs that were bound while loading (``Graph.dims``).
    """

    def __init__(self, model: Path, wanted: Sequence[str], bound: Mapping[str, int] | None = None) -> None:
        try:
            import onnxruntime as ort
        except ImportError as e:
            raise CheckError("this needs ONNX Runtime, which runs the model for comparison: install hetsched[ort]") from e
        import onnx

        self._model = model
        try:
            proto = onnx.load(model, load_external_data=False)
        except Exception as e:
            raise ModelError(f"the reference model {model} cannot be read: {e}") from e
        written = {o for node in proto.graph.node for o in node.output}
        outputs = [o.name for o in proto.graph.output]
        extra = [name for name in dict.fromkeys(wanted) if name in written and name not in outputs]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
        chosen = set(wanted)
        self.names = [n for n in (*outputs, *extra) if n in chosen]
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.resolve().parent))
        try:
            self._session: Any = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as e:
            raise self._failed(e) from e
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._bound = {
            i.name: np.full((1,) * len(i.shape), (bound or {})[i.name], np.int32 if i.type == "tensor(int32)" else np.int64)
            for i in self._session.get_inputs()
            if i.name in (bound or {})
        }

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The chosen tensors, by name.

        Raises:
            CheckError: ONNX Runtime fails.
        """
        if not self.names:
            return {}
        try:
            values = self._session.run(self.names, self._bound | {k: v for k, v in feeds.items() if k in self._inputs})
        except Exception as e:
            raise self._failed(e) from e
        return {name: np.asarray(value) for name, value in zip(self.names, values, strict=True)}

    def _failed(self, error: Exception) -> CheckError:
        return CheckError(f"ONNX Runtime cannot run the reference model {self._model}: {str(error).splitlines()[0]}")
