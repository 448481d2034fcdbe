"""What the host can run of whole layers: recurrent ones, and local response normalisation.

Part of :mod:`hetsched.runtime.support`, which says what a rule is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hetsched.graph import DType, Graph, Op

#: The functions of a recurrent layer that have kernels, by ONNX's names in lower case: as ``codes.UNARY`` has them, then the
#: parameters that hold where none are given. Zero: the function takes no such parameter.
FUNCTIONS: Mapping[str, tuple[str, float, float]] = {
    "tanh": ("Tanh", 0.0, 0.0), "sigmoid": ("Sigmoid", 0.0, 0.0), "relu": ("Relu", 0.0, 0.0), "leakyrelu": ("LeakyRelu", 0.01, 0.0),
    "hardsigmoid": ("HardSigmoid", 0.2, 0.5), "elu": ("Elu", 1.0, 0.0), "softplus": ("Softplus", 0.0, 0.0),
}  # fmt: skip
#: The functions of one direction where the node names none.
DEFAULTS: Mapping[str, tuple[str, ...]] = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


@dataclass(frozen=True, slots=True)
class GateFunction:
    """A function of a recurrent layer: its name in ``codes.UNARY`` and its parameters."""

    name: str
    alpha: float
    beta: float


def gate_functions(op: Op, directions: int) -> tuple[tuple[GateFunction, ...], ...]:
    """The functions of each direction. Parameters are listed for those functions that take them, in their order.

    Raises:
        KeyError: a function has no kernel.
    """
    per = len(DEFAULTS[op.type])
    names = _texts(op, "activations") or list(DEFAULTS[op.type]) * directions
    alphas, betas = _floats(op, "activation_alpha"), _floats(op, "activation_beta")
    made = []
    for name in names:
        kernel, alpha, beta = FUNCTIONS[name.lower()]
        alpha = alphas.pop(0) if alpha and alphas else alpha
        beta = betas.pop(0) if beta and betas else beta
        made.append(GateFunction(kernel, alpha, beta))
    return tuple(tuple(made[d * per : (d + 1) * per]) for d in range(directions))


def _texts(op: Op, name: str) -> list[str]:
    values = op.attrs.get(name, ())
    return [str(v) for v in values] if isinstance(values, tuple) else []


def _floats(op: Op, name: str) -> list[float]:
    values = op.attrs.get(name, ())
    return [float(v) for v in values] if isinstance(values, tuple) else []


def _given(op: Op, slot: int) -> str:
    return op.inputs[slot] if slot < len(op.inputs) else ""


def _recurrent(op: Op, graph: Graph) -> str | None:
    if op.type == "LSTM" and _given(op, 7):
        return f"its input {op.inputs[7]!r} holds peepholes, which the kernel has not"
    if op.attr_int("input_forget", 0):
        return "it couples the input and forget gates, which the kernel does not"
    strange = next((n for n in _texts(op, "activations") if n.lower() not in FUNCTIONS), None)
    if strange is not None:
        return f"its activation {strange} has no kernel; there are {', '.join(name for name, _, _ in FUNCTIONS.values())}"
    moving = next((n for n in (_given(op, i) for i in (1, 2, 3)) if n and not graph.tensors[n].is_constant), None)
    if moving is not None:
        return f"its weight {moving!r} is computed while running, and the kernel packs it once"
    return _lengths(op, graph) or _floating(op, graph)


def _lengths(op: Op, graph: Graph) -> str | None:
    name = _given(op, 4)
    if name and graph.tensors[name].dtype is not DType.I32:
        return f"its lengths {name!r} are {graph.tensors[name].dtype.value}, and the kernel takes int32"
    return None


def _floating(op: Op, graph: Graph) -> str | None:
    """Inputs and states are float32 or quantized in 8 bits, results float32."""
    names = [n for n in (_given(op, i) for i in ((0, 1) if op.type == "GridSample" else (0, 5, 6))) if n]
    for t in [graph.tensors[n] for n in (*names, *(o for o in op.outputs if o))]:
        stored = t.quantization is not None and t.quantization.granularity != "group" and t.dtype in (DType.I8, DType.U8)
        if t.dtype is not DType.F32 and not stored:
            return f"tensor {t.name!r} is {t.dtype.value}, and its kernel takes float32"
    return None


def _local_response(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) < 3:
        return f"its input {x.name!r} has {len(x.shape)} dimensions; the kernel takes images, channels, then positions"
    return _floating(op, graph)


def _grid_sample(op: Op, graph: Graph) -> str | None:
    x = graph.tensors[op.inputs[0]]
    if len(x.shape) != 4:  # images, channels, height, width
        return f"its input {x.name!r} has {len(x.shape)} dimensions; the kernel samples images of two"
    return _floating(op, graph)


def _attention(op: Op, graph: Graph) -> str | None:
    if any(_given(op, i) for i in (4, 5)) or any(op.outputs[1:]):
        return "it has a cache, and its kernel has none"
    mask = _given(op, 3)
    if mask and (graph.tensors[mask].dtype not in (DType.F32, DType.BOOL) or graph.tensors[mask].quantization is not None):
        return f"its mask {mask!r} is {graph.tensors[mask].dtype.value}, and the kernel takes float32 or bool"
    plain = [graph.tensors[n] for n in (*op.inputs[:3], op.outputs[0])]
    bad = next((t for t in plain if t.dtype is not DType.F32 or t.quantization is not None), None)
    return None if bad is None else f"tensor {bad.name!r} is {bad.dtype.value}, and its kernel takes float32"


RULES: Mapping[str, Callable[[Op, Graph], str | None]] = {
    **dict.fromkeys(DEFAULTS, _recurrent), "LRN": _local_response, "GridSample": _grid_sample, "Attention": _attention,
}  # fmt: skip
