"""What the host's kernels spend on the order of channels: copies of images that one operator keeps channels last and another does not.

Which tensors are kept so, and who converts them, follows the numba delegate (:mod:`hetsched.channels_last`): whoever reads or
writes an image in the other order makes a copy of it, each reader its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsched.channels_last import channels_last, works_channels_last
from hetsched.graph import DType, Graph, Op
from hetsched_cost_models.operators import VECTOR_KINDS
from hetsched_cost_models.parameters import vector_factors
from hetsched_cost_models.roofline import PEAK_OF, Cost, Rates, overrides_of
from hetsched_cost_models.work import BoolArray, FloatArray

_TRANSPOSE, _POOL, _POOL_LAST = (VECTOR_KINDS.index(k) for k in ("transpose", "pool", "pool_last"))


def with_orders(cost: Cost, graph: Graph, rates: Rates, precision: str) -> Cost:
    """The cost of every op on a queue of the host with the copies that it makes; pools of channels-last images have their own rate."""
    factors = vector_factors(rates.family, PEAK_OF[precision], overrides_of(rates))
    copied, pooled = _orders(graph, precision)
    seconds = copied * factors[_TRANSPOSE] / rates.vector_bytes_s
    share = np.where(pooled, factors[_POOL_LAST] / factors[_POOL], 1.0)
    return replace(cost, compute_s=cost.compute_s * share + seconds, work_s=cost.work_s * share + seconds)


def _orders(graph: Graph, precision: str) -> tuple[FloatArray, BoolArray]:
    """Bytes that each op reads and writes to change the order of images, and which ops are pools of channels-last images."""
    own = {op.name: _precision(op, graph) for op in graph.ops}
    kept = channels_last(graph, own, dict.fromkeys(own, "numba"))
    copied, pooled = np.zeros(len(graph.ops)), np.zeros(len(graph.ops), np.bool_)
    for i, op in enumerate(graph.ops):
        last = works_channels_last(op, graph, precision) or any(o in kept and graph.tensors[o].dtype is DType.F32 for o in op.outputs)
        images = [n for n in (*dict.fromkeys(op.inputs), *op.outputs) if n and _is_image(graph, n)]
        copied[i] = sum(2.0 * graph.tensors[n].nbytes for n in images if (n in kept) != last)
        pooled[i] = last and op.type == "MaxPool"
    return copied, pooled


def _precision(op: Op, graph: Graph) -> str:
    """What an op that works on images runs at on the host: integers where its image is quantized."""
    return "w8a8" if op.inputs and op.inputs[0] and graph.tensors[op.inputs[0]].quantization is not None else "f32"


def _is_image(graph: Graph, name: str) -> bool:
    tensor = graph.tensors[name]
    return len(tensor.shape) == 4 and not tensor.is_constant and min(tensor.shape[1], tensor.elements // max(tensor.shape[1], 1)) > 1
