"""The verb *export*: a plan as a folder that a vendor's runtime loads, with golden vectors."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hetsched
from hetsched.errors import OptionError

if TYPE_CHECKING:
    from hetsched.app.planned import Planned
    from hetsched.export.bundle import BundleFolder, Golden, Manifest
    from hetsched.export.segments import Source

#: Target -> the module that writes its files.
TARGETS: Mapping[str, str] = {
    "coreml": "hetsched.export.coreml", "executorch": "hetsched.export.executorch", "litert": "hetsched.export.litert",
    "llama.cpp": "hetsched.export.llama_cpp",
    "openvino": "hetsched.export.openvino", "ort": "hetsched.export.ort", "qnn": "hetsched.export.qnn",
}  # fmt: skip
#: Targets whose files a generic runner cannot feed: they have no golden vectors.
_WITHOUT_GOLDEN = frozenset({"executorch", "llama.cpp"})


def export(plan: str | Path | Planned, to: str, output: str | Path, *, level: int = 0, seed: int = 0, phase: str | None = None) -> Manifest:
    """Write a plan as a bundle.

    Args:
        plan: a plan file, or a plan.
        to: one of :data:`TARGETS`.
        output: the folder to write; an older bundle there is replaced.
        level: throttle level of the plan.
        seed: of the golden inputs.
        phase: ``prefill`` or ``decode`` of a plan of a language model.

    Raises:
        OptionError: there is no such target, or the folder cannot be written.
        UnsupportedModelError: the target's runtime has no form for an operator; the message names it.
    """
    from hetsched.app.language import PlannedLanguage
    from hetsched.app.sessions import open_session
    from hetsched.export.bundle import BundleFolder, Manifest
    from hetsched.export.segments import Source

    if to not in TARGETS:
        raise OptionError(f"--to {to}: plans are exported to {', '.join(TARGETS)}")
    planned = open_session(plan, level=level)
    if isinstance(planned, PlannedLanguage):
        if (phase := phase or "decode") not in planned.phases:
            raise OptionError(f"--phase {phase}: the plan has {' and '.join(planned.phases)}")
        planned = planned.phases[phase]
    elif phase is not None:
        raise OptionError(f"--phase {phase}: the plan has one phase only; leave it out")
    writer: Any = import_module(TARGETS[to])
    source = Source(planned.graph, planned.plan, planned.soc)
    prediction, reference = planned.plan.prediction, planned.deployment.model
    with BundleFolder(Path(output)) as folder:
        segments = writer.write(source, folder)
        golden = None if to in _WITHOUT_GOLDEN else _golden(source, planned, folder, seed)
        manifest = Manifest(
            hetsched=hetsched.__version__, target=to, runtime=writer.RUNTIME,
            minimum_runtime=writer.MINIMUM_RUNTIME, model=planned.graph.name,
            model_sha256=reference.sha256, soc=planned.soc.id, predicted_latency_s=prediction.latency_s,
            inputs=source.tensors(planned.graph.inputs), outputs=source.tensors(planned.graph.outputs), segments=segments, golden=golden,
            notes=planned.plan.notes,
        )  # fmt: skip
        return folder.finish(manifest)


def _golden(source: Source, planned: Planned, folder: BundleFolder, seed: int) -> Golden:
    """Seeded inputs, and the outputs that ONNX Runtime computes for the whole graph in one piece, without optimisations."""
    from hetsched.app.running import calibrated_inputs
    from hetsched.export.bundle import COSINE, COSINE_OF_INTEGERS, Golden
    from hetsched.runtime import make_inputs
    from hetsched.runtime.oracle import whole_graph

    feeds = make_inputs(source.graph, seed, calibrated_inputs(planned))
    outputs = whole_graph(source.graph, feeds)
    integers = any(p.precision.startswith("w") for p in source.plan.placements)
    return Golden(
        inputs=folder.write_arrays("golden/inputs.npz", feeds), outputs=folder.write_arrays("golden/outputs.npz", outputs),
        made_by="ONNX Runtime, the plan's graph in one piece, without optimisations", cosine=COSINE_OF_INTEGERS if integers else COSINE,
    )  # fmt: skip
