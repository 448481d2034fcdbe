"""Layers of a quantized model that ONNX Runtime leaves on the CPU: constants and edges whose quantization no operator takes along.

Its QNN provider runs an operator in integers where every input is dequantized and the output quantized beside it. Where AI Hub's files
break that pattern, dequantization stands alone, and of constants with one scale a channel QNN has none ("does not support a standalone
DQ op with per-channel quantization", quantize_op_builder.cc). What breaks it, by the sources
(ORT: pull requests of microsoft/onnxruntime; QNN: of onnxruntime/onnxruntime-qnn):

- ``edges``: the provider leaves quantizing inputs and dequantizing outputs to the CPU unless told otherwise
  (``offload_graph_io_quantization``).
- ``filters``: convolutions whose bias is stored as floats, as AIMET does (qualcomm/aimet #171), join no group (QNN #481) unless ONNX
  Runtime quantizes the bias itself (ORT #22889: Conv and Gemm, so not ConvTranspose); in eight bits those that a Relu or Clip keeps from
  their quantization, as in "the models we are getting from Qualcomm AI hub" (ORT #22579, #22888).
- ``products``: MatMul with a constant, which has no bias and got no scales by channel (ORT #20154 gave them to Conv alone).
- ``bounds``: a Clip after a convolution whose minimum and maximum are dequantized constants (ORT #26438, QNN #112 and #586).

Which of them a release of AI Hub has, and in how many layers, is read off rows (:func:`fitted`): its converters are not public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from hetsched_cost_models.fit import placement_data
from hetsched_cost_models.fit.placement_data import ACTIVATED, BIASED, BOUNDING, INPUT, OUTPUT, WEIGHTED, Operators, Row

#: First releases of spans in which AI Hub's quantized files and ONNX Runtime behave alike: where the layers of a model change in the rows.
SPANS = ((0, 0), (0, 35), (0, 40), (0, 47))
#: Cause -> the operator that the layers belong to.
CAUSES = {"edges": "QuantizeLinear", "filters": "Conv", "products": "MatMul", "bounds": "Clip"}
#: Cause -> the most layers that one can leave: an edge is converted once; a constant is quantized and dequantized, a Clip has two.
_MOST = {"edges": 1, "filters": 2, "products": 2, "bounds": 2}

#: Layers on the CPU for each exposed operator, by span and cause.
Layers = Mapping[tuple[int, str], int]


def span(row: Row) -> int:
    """The index in :data:`SPANS` of a row's release."""
    return sum(row.version >= first for first in SPANS) - 1


def concerns(row: Row) -> bool:
    """Whether a row is of a quantized model on the NPU through ONNX Runtime."""
    return (row.runtime, row.unit) == ("onnx", "npu") and row.precision.startswith("w")


def exposed(row: Row) -> dict[str, int]:
    """Cause -> operators (or edges) of the row's model whose quantization can stand alone."""
    wide = "a16" in row.precision or "int16" in row.precision
    found = dict.fromkeys(CAUSES, 0)
    for line in placement_data.operators()[row.model]:
        cause = _cause(line, wide)
        if cause:
            found[cause] += line.count
    return found


def _cause(line: Operators, wide: bool) -> str | None:
    if line.operator in (INPUT, OUTPUT):
        return None if line.integers else "edges"
    if line.form == ACTIVATED or (line.form == BIASED and (wide or line.operator == "ConvTranspose")):
        return "filters"
    return {WEIGHTED: "products", BOUNDING: "bounds"}.get(line.form)


def left_alone(row: Row, layers: Layers) -> dict[str, int]:
    """Operator -> layers that its quantization leaves on the CPU, for a row that :func:`concerns` picks."""
    counts = {CAUSES[cause]: number * layers.get((span(row), cause), 0) for cause, number in exposed(row).items()}
    return {operator: count for operator, count in counts.items() if count}


def fitted(rows: Iterable[Row]) -> Layers:
    """The layers by span and cause with the least absolute error over the rows; of equals the fewest."""
    by_span: dict[int, list[tuple[dict[str, int], int]]] = {}
    for row in rows:
        if concerns(row):
            by_span.setdefault(span(row), []).append((exposed(row), row.cpu))
    return {(index, cause): n for index, cases in sorted(by_span.items()) for cause, n in _best(cases).items() if n}


def _best(cases: Sequence[tuple[dict[str, int], int]]) -> dict[str, int]:
    """Layers by cause for rows of one span: (exposed operators by cause, layers measured)."""
    tried = (dict(zip(_MOST, layers, strict=True)) for layers in product(*(range(n + 1) for n in _MOST.values())))
    return min(tried, key=lambda layers: _cost(cases, layers))


def _cost(cases: Sequence[tuple[dict[str, int], int]], layers: Mapping[str, int]) -> tuple[int, int]:
    errors = (sum(layers[cause] * count for cause, count in counts.items()) - measured for counts, measured in cases)
    return sum(map(abs, errors)), sum(layers.values())
