"""Is the run right? Every op's outputs against the user's own file, run by somebody else (:mod:`hetsched.runtime.oracle`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hetsched.errors import CheckError
from hetsched.graph import Graph, Op, Tensor
from hetsched.passes.unfuse import parts
from hetsched.plans import Plan
from hetsched.runtime.comparison import Difference, compare
from hetsched.runtime.oracle import reference_of

if TYPE_CHECKING:
    from hetsched.runtime.executable import RunResult

#: A float op passes at this cosine.
FLOAT_COSINE = 0.9999
#: A float op passes at this one where itself or one before it is computed in float16 (11 bits).
HALF_COSINE = 0.999
#: An integer run passes at these, at the graph's outputs.
INTEGER_COSINE = 0.99
INTEGER_SNR_DB = 20.0
_SINGLE_VALUE_SNR_DB = {FLOAT_COSINE: 60.0, HALF_COSINE: 40.0}
#: With more constant reference tensors than this share the net is dead (zero weights, say) and the check fails.
MAX_CONSTANT_SHARE = 0.5
#: A constant tensor has no direction: it must agree to this, relative to its value.
_CONSTANT_TOLERANCE = {FLOAT_COSINE: 1e-4, HALF_COSINE: 1e-3}
#: Precisions that have float16's digits or fewer.
_HALVES = frozenset({"f16", "bf16"})

Verdict = Literal["ok", "reported", "constant", "failed"]


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """One tensor, compared. ``origin`` are the user's nodes behind the op that wrote it.

    ``verdict``: ``ok`` and ``failed`` were judged; ``reported`` is an intermediate of an integer run, shown but not judged;
    ``constant`` agrees, but its reference has one value only and so proves nothing.
    """

    op: str
    type: str
    origin: tuple[str, ...]
    queue: str
    precision: str
    tensor: str
    is_output: bool
    difference: Difference
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The comparison of a whole run. ``unmatched`` are tensors that the user's file does not have (made by passes).

    ``oracle`` is who computed the reference.
    """

    model: str
    checks: tuple[TensorCheck, ...]
    unmatched: tuple[str, ...]
    oracle: str = "ONNX Runtime"

    @property
    def failures(self) -> tuple[TensorCheck, ...]:
        """What failed, in execution order."""
        return tuple(c for c in self.checks if c.verdict == "failed")

    @property
    def constants(self) -> tuple[TensorCheck, ...]:
        """What proves nothing because its reference is constant."""
        return tuple(c for c in self.checks if c.verdict == "constant")

    @property
    def proves_nothing(self) -> str:
        """Why passing this check would mean nothing, or "": the reference is (mostly) constant, so any kernel would pass."""
        outputs = [c for c in self.checks if c.is_output]
        if not outputs:
            return "no output was compared"
        dead = [c.tensor for c in outputs if c.verdict == "constant"]
        if dead:
            every = "every output is constant" if len(dead) == len(outputs) else f"the output {dead[0]!r} is constant"
            return f"the reference of {every}"
        counted = [c for c in self.checks if c.difference.elements > 1]
        if len(self.constants) > MAX_CONSTANT_SHARE * len(counted):
            return f"{len(self.constants)} of {len(counted)} reference tensors are constant"
        return ""

    @property
    def passed(self) -> bool:
        """Whether nothing failed and the references were such that something could have."""
        return not self.failures and not self.proves_nothing

    @property
    def worst(self) -> TensorCheck | None:
        """The judged or reported tensor with the lowest cosine."""
        return min((c for c in self.checks if c.verdict != "constant"), key=lambda c: c.difference.cosine, default=None)

    def sentence(self) -> str:
        """One sentence for people."""
        if not self.checks:
            return f"the check of {self.model} compared nothing: no tensor of the plan exists in the model file"
        if self.failures:
            first = self.failures[0]
            name = ", ".join(first.origin) or first.op
            count = f"{len(self.failures)} of {len(self.checks)} tensors"
            return f"the check of {self.model} failed at {count}, first at node {name}: {first.reason}"
        if self.proves_nothing or self.worst is None:
            return f"the check of {self.model} proves nothing: {self.proves_nothing}; use other inputs or weights"
        judged = [c for c in self.checks if c.verdict == "ok"]
        lowest = min(judged, key=lambda c: c.difference.cosine)
        said = f"{self.model}: {len(judged)} tensors judged, worst cosine {lowest.difference.cosine:.6f} at {lowest.op}"
        reported = [c for c in self.checks if c.verdict == "reported"]
        if reported:
            low = min(reported, key=lambda c: c.difference.cosine)
            said += (
                f"; {len(reported)} intermediates after integer ops are reported only, since single rounding steps add up"
                f" (lowest {low.difference.cosine:.4f} at {low.op})"
            )
        return said + (f"; constant and so proving nothing: {len(self.constants)}" if self.constants else "")

    def raise_if_failed(self) -> None:
        """Raise :class:`hetsched.errors.CheckError` unless :attr:`passed`."""
        if not self.passed:
            raise CheckError(self.sentence())

    def summary(self) -> dict[str, Any]:
        """Stable keys for ``run --json``."""
        outputs = [c for c in self.checks if c.is_output]
        worst = self.worst
        return {
            "passed": self.passed,
            "oracle": self.oracle,
            "tensors": len(self.checks),
            "failed": len(self.failures),
            "constant": len(self.constants),
            "unmatched": len(self.unmatched),
            "worst_cosine": None if worst is None else worst.difference.cosine,
            "worst_op": None if worst is None else worst.op,
            "outputs": {
                c.tensor: {"cosine": c.difference.cosine, "snr_db": c.difference.snr_db, "max_abs": c.difference.max_abs} for c in outputs
            },
            "failures": [{"op": c.op, "origin": list(c.origin), "tensor": c.tensor, "reason": c.reason} for c in self.failures],
        }


def check(graph: Graph, plan: Plan, feeds: Mapping[str, npt.NDArray[Any]], result: RunResult, *, model: Path | None = None) -> CheckReport:
    """Compare an observed run with the original file: in ONNX Runtime, in LiteRT, or in the reference executor.

    Args:
        graph: the graph that ran.
        plan: its plan (precision and queue of each op).
        feeds: what was fed.
        result: of ``Executable.run(..., observe=True)``.
        model: the file to compare with; default: the graph's own source; a graph without one is compared with its own unfused
            operators.

    Float ops must reach cosine 0.9999, or 0.999 from the first float16 op on. From the first integer op on, intermediates are
    reported and graph outputs must reach cosine 0.99 and 20 dB. If the reference of every graph output is constant, the check fails
    by itself: any kernel would pass it.

    Raises:
        CheckError: nothing was observed, or nothing here can run the file.
    """
    if not result.observed:
        raise CheckError("the run kept no intermediate tensors: run with observe=True before checking")
    wanted = [*result.observed, *graph.outputs, *_stands_for(graph).values()]
    reference = reference_of(graph, model or graph.source, feeds, wanted)
    return compare_run(graph, plan, result.observed, {**feeds, **reference.values}, reference.oracle)


def compare_run(
    graph: Graph, plan: Plan, observed: Mapping[str, npt.NDArray[Any]], reference: Mapping[str, npt.NDArray[Any]],
    oracle: str = "ONNX Runtime",
) -> CheckReport:  # fmt: skip
    """Compare observed tensors with reference tensors of the same names, op by op.

    Integers that a pass made of a float tensor are compared with that tensor, as reals; those of ``PropagateQuantization`` have
    its name and ``/integers``.
    """
    placed = {p.op: p for p in plan.placements}
    stands_for = _stands_for(graph)
    precision = {p.op: p.precision for p in plan.placements}
    integer = _after(graph, lambda op: precision[op.name] not in ("f32", *_HALVES) or _is_quantized(graph, op))
    half = _after(graph, lambda op: precision[op.name] in _HALVES)
    checks: list[TensorCheck] = []
    unmatched: list[str] = []
    for op in graph.ops:
        for name in op.outputs:
            if name not in observed:
                continue
            known = name if name in reference else stands_for.get(name, name.removesuffix("/integers"))
            if known not in reference:
                unmatched.append(name)
                continue
            tensor = graph.tensors[name]
            difference = _difference(graph, tensor, observed[name], reference[known])
            verdict, reason = _judge(tensor, difference, name in graph.outputs, op.name in integer, op.name in half)
            p = placed[op.name]
            checks.append(
                TensorCheck(op.name, op.type, op.origin, p.queue, p.precision, name, name in graph.outputs, difference, verdict, reason)
            )
    return CheckReport(graph.name, tuple(checks), tuple(unmatched), oracle)


def _stands_for(graph: Graph) -> dict[str, str]:
    """Quantized tensor -> the float tensor that it was made of or, failing that, that is made of it.

    The QuantizeLinear and DequantizeLinear that say so may be alone or in an operator.
    """
    nodes = [part for op in graph.ops for part in parts(op)]
    made_of_it = {part.inputs[0]: part.outputs[0] for part in nodes if part.type == "DequantizeLinear"}
    return made_of_it | {part.outputs[0]: part.inputs[0] for part in nodes if part.type == "QuantizeLinear"}


def _difference(graph: Graph, tensor: Tensor, got: npt.NDArray[Any], reference: npt.NDArray[Any]) -> Difference:
    if got.shape != reference.shape:
        raise CheckError(f"tensor {tensor.name!r} has the shape {list(got.shape)} here and {list(reference.shape)} in the reference")
    return compare(dequantized(graph, tensor, got), dequantized(graph, tensor, reference))


def dequantized(graph: Graph, tensor: Tensor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Real values of a stored tensor: unchanged unless it is quantized."""
    q = tensor.quantization
    if q is None or values.dtype.kind == "f":
        return values
    scale = graph.tensors[q.scale].numpy().astype(np.float64)
    zero = np.float64(0) if q.zero_point is None else graph.tensors[q.zero_point].numpy().astype(np.float64)
    if q.granularity == "channel" and scale.ndim == 1 and q.axis is not None:
        shape = [1] * values.ndim
        shape[q.axis] = -1
        scale = scale.reshape(shape)
        zero = zero.reshape(shape) if np.ndim(zero) else zero
    out: npt.NDArray[Any] = (values.astype(np.float64) - zero) * scale
    return out


def _after(graph: Graph, begins: Callable[[Op], bool]) -> frozenset[str]:
    """Ops of which ``begins`` holds, and every op that depends on one."""
    tainted_tensors: set[str] = set()
    ops: set[str] = set()
    for op in graph.ops:
        if begins(op) or not tainted_tensors.isdisjoint(op.inputs):
            ops.add(op.name)
            tainted_tensors.update(op.outputs)
    return frozenset(ops)


def _is_quantized(graph: Graph, op: Op) -> bool:
    return any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)


def _judge(tensor: Tensor, d: Difference, is_output: bool, integer: bool, half: bool) -> tuple[Verdict, str]:
    needed = HALF_COSINE if half else FLOAT_COSINE
    if d.bad_values:
        return "failed", f"{d.bad_values} values of {tensor.name!r} are NaN or infinite where the reference is not"
    if d.constant and d.elements > 1:
        if d.max_abs > _CONSTANT_TOLERANCE[needed] * max(1.0, d.reference_peak):
            return "failed", f"the reference of {tensor.name!r} is constant and the result differs from it by {d.max_abs:.3g}"
        return "constant", "the reference is constant: it proves nothing"
    if not tensor.dtype.is_float and tensor.quantization is None and not integer and not half:
        return (
            ("ok", "") if d.max_abs == 0 else ("failed", f"{tensor.name!r} holds {tensor.dtype.value} and is off by up to {d.max_abs:.3g}")
        )
    figures = f"cosine {d.cosine:.6f}, SNR {d.snr_db:.1f} dB at {tensor.name!r}"
    if not integer:
        # A single value has no direction either: there the error itself decides.
        good = d.cosine >= needed and (d.elements > 1 or d.snr_db >= _SINGLE_VALUE_SNR_DB[needed])
        return ("ok", "") if good else ("failed", f"{figures} ({'float16' if half else 'float'} needs cosine {needed})")
    if not is_output:
        return "reported", "an intermediate after an integer op: reported, not judged"
    good = d.cosine >= INTEGER_COSINE and d.snr_db >= INTEGER_SNR_DB
    return ("ok", "") if good else ("failed", f"{figures} (an output of an integer run needs {INTEGER_COSINE} and {INTEGER_SNR_DB:.0f} dB)")
