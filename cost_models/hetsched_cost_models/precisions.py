"""Which precisions an operator can have on a queue: what the user asked for, the model's own integers, the hardware.

``docs/precisions.md`` explains the names. On this machine its own kernels decide, on other CPUs a rule of thumb (convolutions
and matrix products have integer kernels), on an accelerator its operator table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hetsched.errors import OptionError, UnsupportedModelError
from hetsched.graph import CONTROL_FLOW, DType, Graph, Op, Role, Tensor
from hetsched.socs import Processor
from hetsched_cost_models.operators import MATRIX, PRODUCTS
from hetsched_cost_models.support import SupportTable

#: Why a machine's kernels cannot run an op at a precision; None if they can.
Supported: TypeAlias = Callable[[Op, Graph, str], str | None]
#: What ``build_table`` takes as precision.
PRECISIONS = ("auto", "float", "mixed", "w8a8", "w8a8-dynamic", "w8a16", "w4a16", "w4a8", "fp8")
#: Those whose activations are 16-bit integers, which are for vendors' runtimes.
WIDE = ("w8a16", "w4a16")
#: Those whose matrix products have 4-bit weights; engines of language models have them on every processor.
FOUR_BIT = ("w4a16", "w4a8")
_ENGINES_TAKE_EIGHT = "engines of language models meet 4-bit weights with 8-bit activations on CPUs: ask for w4a8"
_NO_RANGES = "its activation has no range, and only CPU kernels quantize one when it arrives"
#: Operators that no accelerator gets, whatever its table says, and why.
CPU_ONLY = {
    "Sample": "the next token is chosen on the CPU, which prepares the next step",
    **dict.fromkeys(CONTROL_FLOW, "which of its operators run depends on the data, and the runtimes compile fixed graphs"),
}
_CONTRIB = "com.microsoft"
_NO_INTEGERS = frozenset({"LSTM", "GRU", "RNN", "Einsum", "ConvTranspose", "FusedConvTranspose"})


@dataclass(frozen=True, slots=True)
class Offer:
    """The precisions an op gets on a queue, and why it does not get others.

    ``delegate`` is what runs it where that is not the queue's own delegate.
    """

    precisions: tuple[str, ...]
    refusals: tuple[tuple[str, str], ...]
    delegate: str = ""


def check_precision(precision: str) -> None:
    """Refuse unknown precisions.

    Raises:
        OptionError: the name is not one of :data:`PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise OptionError(f"the precision {precision!r} cannot be planned: use one of {', '.join(PRECISIONS)}")


def check_model(graph: Graph, precision: str, quantized: bool, engine: bool) -> None:
    """Whether a precision is for such a model; ``engine``: engines of language models run it.

    Raises:
        UnsupportedModelError: it is not.
    """
    if precision in (*WIDE, *FOUR_BIT, "fp8") and quantized:
        raise UnsupportedModelError(
            f"{graph.name!r} brings 8-bit activations of its own: {precision} is for float models, use --precision auto"
        )
    if precision == "w4a8" and not engine:
        raise UnsupportedModelError(
            f"{graph.name!r} cannot be planned as w4a8 here: that is for language models with a cache, on phones; use w8a8-dynamic"
        )


def is_quantized_model(graph: Graph) -> bool:
    """Whether any activation carries a quantization (a QDQ or QLinear model)."""
    return any(_is_integer_activation(t) for t in graph.tensors.values())


def uses_integers(graph: Graph, op: Op) -> bool:
    """Whether any activation the op reads or writes is a quantized integer."""
    return any(_is_integer_activation(graph.tensors[n]) for n in (*op.inputs, *op.outputs) if n)


def _is_integer_activation(tensor: Tensor) -> bool:
    """Whether a tensor is a quantized activation; caches in blocks are stored so, and their operators compute in float."""
    blocks = tensor.role is Role.STATE and tensor.quantization is not None and tensor.quantization.block_bytes > 0
    return tensor.quantization is not None and not tensor.is_constant and not blocks


def is_dynamic(op: Op) -> bool:
    """Whether the model itself quantizes the op's float activation when it arrives."""
    return bool(op.attr_int("dynamic", 0)) and op.type in MATRIX


def integer_product(graph: Graph, op: Op) -> bool:
    """Whether CPU kernels have an integer form of the op, as a rule of thumb for CPUs whose kernels are not this project's.

    In a QDQ model both operands of the product are 8-bit quantized; in a float model the weight is a constant, which is
    quantized ahead, and the activation is quantized when it arrives (dynamically).
    """
    if op.type not in MATRIX or op.type in _NO_INTEGERS or len(op.inputs) < 2 or not op.inputs[1]:
        return False
    x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    if any(t.quantization is not None and t.dtype not in (DType.I8, DType.U8) for t in (x, w)):
        return False
    if x.quantization is not None:
        return w.quantization is not None
    return x.dtype.is_float and w.is_constant and (w.dtype.is_float or w.quantization is not None)


@dataclass(frozen=True, slots=True)
class Place:
    """All of a processor that decides which operators it gets, so that equal places get equal offers.

    ``floats``, ``integers``, ``wide``, ``eight``: whether it has a rate for floats, for INT8, for 8-bit weights and 16-bit activations, for
    8-bit floats; ``table``: the accelerator's operator table, None if no limits are known; ``engine``: whether an engine of language
    models runs the graph there, which computes on 4-bit weights.
    """

    kind: str
    model: str
    float_dtype: str
    floats: bool
    integers: bool
    wide: bool
    eight: bool
    table: SupportTable | None
    engine: bool = False

    @classmethod
    def of(
        cls, processor: Processor, table: SupportTable | None, *, wide: bool = False, half: bool = False, engine: bool = False
    ) -> Place:  # fmt: skip
        """What decides of ``processor``, through the runtime that has this ``table``; ``half``: float16 where it has a rate for it."""
        peaks = {p for c in processor.clusters for p in c.peak_ops_s}
        floats = bool({"f16", "bf16", "f32"} & peaks)
        dtype = "f16" if half and all("f16" in c.peak_ops_s for c in processor.clusters) else processor.float_dtype
        return cls(processor.kind, processor.model, dtype, floats, "i8" in peaks, wide, "f8" in peaks, table, engine)


def offer(
    graph: Graph, op: Op, place: Place, wanted: str, quantized_model: bool,
    supported: Supported | None = None, others: Mapping[str, Supported] | None = None,
) -> Offer:  # fmt: skip
    """Precisions of one op on one processor.

    Args:
        graph: the graph.
        op: one of its ops.
        place: where it would run.
        wanted: one of :data:`PRECISIONS`.
        quantized_model: whether the model carries quantized activations.
        supported: what this machine's CPU kernels refuse, and why; None: no kernel is known, a rule of thumb decides.
        others: delegate name -> what that delegate refuses on this machine's CPU; asked, in float, where no kernel can.
    """
    if wanted == "mixed":
        float_, integer = (offer(graph, op, place, p, quantized_model, supported, others) for p in ("float", "w8a8"))
        return Offer(
            tuple(dict.fromkeys((*float_.precisions, *integer.precisions))),
            tuple(dict.fromkeys((*float_.refusals, *integer.refusals))),
            float_.delegate or integer.delegate,
        )
    dynamic, stored = wanted == "w8a8-dynamic", _stored(graph, op, wanted)
    integers = wanted == "w8a8" or (wanted != "float" and (is_dynamic(op) or (quantized_model and uses_integers(graph, op))))
    integers = integers or (dynamic and place.kind == "cpu")
    if place.kind == "cpu":
        if supported is not None:
            own = _offer_of_kernels(graph, op, supported, integers and op.type in MATRIX, place.float_dtype)
            return own if own.precisions else _offer_of_others(graph, op, others or {}, place.float_dtype, own.refusals)
        if place.engine and _four_bits(graph, op, wanted):
            return Offer(("w4a8",), ()) if wanted == "w4a8" else Offer((place.float_dtype,), (("w4a16", _ENGINES_TAKE_EIGHT),))
        return Offer(("w8a8",) if integers and integer_product(graph, op) else (place.float_dtype,), ())
    if op.type in CPU_ONLY:
        return Offer((), ((place.float_dtype, CPU_ONLY[op.type]),))
    if _is_custom(op, place.table):
        name = op.type if not op.domain else f"{op.type} of domain {op.domain!r}"
        return Offer((), ((place.float_dtype, f"a custom operator runs on the CPU only, and {name} is one"),))
    refusals: list[tuple[str, str]] = [("w8a8", _NO_RANGES)] if dynamic and not integers and integer_product(graph, op) else []
    if integers or (stored in WIDE and (place.wide or not place.engine)):
        why = _integer_refusal(graph, op, place, stored)
        if why is None:
            return Offer((stored,), ())
        refusals.append((stored, why))
    why = _float_refusal(graph, op, place)
    if wanted == "fp8" and why is None:
        if place.eight:
            return Offer(("f8",), ())
        refusals.append(("f8", f"{place.model} has no FP8 rate"))
    if why is None:
        narrow = place.engine and _four_bits(graph, op, wanted)
        return Offer(("w4a16" if narrow else place.float_dtype,), tuple(refusals))
    refusals.append((place.float_dtype, why))
    return Offer((), tuple(refusals))


def _stored(graph: Graph, op: Op, wanted: str) -> str:
    """The integers that an accelerator computes an op in."""
    if wanted not in (*WIDE, *FOUR_BIT):
        return "w8a8"
    return "w4a16" if _four_bits(graph, op, wanted) else "w8a16"


def _four_bits(graph: Graph, op: Op, wanted: str) -> bool:
    """Whether an op's weights become 4 bits: those of products with constants do."""
    return wanted in FOUR_BIT and op.type in PRODUCTS and bool(graph.constants(op))


def _is_custom(op: Op, table: SupportTable | None) -> bool:
    """Whether an operator is outside ONNX's own vocabulary, made of nothing that is inside, and not in the runtime's list by name.

    Lists name ONNX Runtime's own operators (``com.microsoft``) beside ONNX's.
    """
    listed = op.domain == _CONTRIB and table is not None and op.type in table.rules
    return op.domain not in ("", "ai.onnx") and not op.is_composite and not listed


def _offer_of_kernels(graph: Graph, op: Op, supported: Supported, integers: bool, float_dtype: str) -> Offer:
    """The first of the wanted precisions that the kernels have, and why not those before it."""
    refusals: list[tuple[str, str]] = []
    for precision in ("w8a8", float_dtype) if integers else (float_dtype,):
        why = supported(op, graph, precision)
        if why is None:
            return Offer((precision,), tuple(refusals))
        refusals.append((precision, why))
    return Offer((), tuple(refusals))


def _offer_of_others(
    graph: Graph, op: Op, others: Mapping[str, Supported], float_dtype: str, refusals: tuple[tuple[str, str], ...]
) -> Offer:
    """The first of the other delegates that runs the op in float."""
    said = list(refusals)
    for delegate, supported in others.items():
        why = supported(op, graph, float_dtype)
        if why is None:
            return Offer((float_dtype,), tuple(refusals), delegate)
        said.append((float_dtype, why))
    return Offer((), tuple(said))


def _float_refusal(graph: Graph, op: Op, place: Place) -> str | None:
    if not place.floats:
        return f"{place.model} has no float rate: it computes on 8-bit integers only"
    return place.table.refusal(graph, op, "f16") if place.table is not None else None


def _integer_refusal(graph: Graph, op: Op, place: Place, precision: str) -> str | None:
    if precision in WIDE and not place.wide:
        return f"no rate of {place.model} is known for {precision[1]}-bit weights with 16-bit activations"
    if not place.integers:
        return f"{place.model} has no INT8 rate: 8-bit tensors are dequantized to float there"
    return place.table.refusal(graph, op, "w8a8") if place.table is not None else None
