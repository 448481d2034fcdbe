"""Mixtures of experts in a step: a router chooses, experts work on the rows that use them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Op
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched.language.run_values import Descriptor, Value
from hetsched.language.step_products import columns_in_parts
from hetsched.language.step_values import ROWS
from hetsched.language.weights import block_kind
from hetsched.reference.gguf_types import constant_value
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.language_rules import MIXTURE_FUNCTIONS, expert_slots
from hetsched.runtime.lower.matrix_groups import gguf_weights
from hetsched_kernels import codes, experts
from hetsched_kernels.few_bits import PackedGroups, pack_groups
from hetsched_kernels.gemm import pack_b_f32
from hetsched_kernels.groups import Groups
from hetsched_kernels.program import Call
from hetsched_kernels.tile import COLS, LANES

Array = npt.NDArray[Any]
#: Storage of the experts that the rows of a layer use.
_CHOSEN = "chosen experts"


def router(b: Building, one: Fused) -> None:
    """Router: the best experts of every row, and their shares."""
    op, scores, (share, _) = one.op, one.reads[0], one.writes
    many, each, width = op.attr_int("num_experts", 1), op.attr_int("experts_per_token", 1), b.width(scores)
    x, to, chosen = b.read(scores), b.write(share), b.keep(_CHOSEN, b.capacity * each, np.int64)
    calls = []
    for part in b.parts:
        args = (part.of(x, width), part.of(to, each), part.of(chosen, each), part.rows, many, each, bool(op.attr_int("normalize", 1)))
        calls.append(Call(experts.route_f32, (), args))
    b.emit(calls, [scores], [share, _CHOSEN])


def mixture(b: Building, one: Fused) -> None:
    """MoE: weights in blocks are computed on directly, others in float32; all rows together, so that each weight is read once."""
    op, (x, share), out = one.op, one.reads[:2], one.writes[0]
    slots = expert_slots(op)
    inner, width, many = b.graph.tensors[op.inputs[slots[2][0]]].shape[-1], b.width(x), op.attr_int("num_experts", 1)
    function = codes.ACTIVATION[MIXTURE_FUNCTIONS[op.attr_str("activation", "silu")]]
    each = op.attr_int("experts_per_token", 1)
    largest = experts.experts_shape(b.capacity, width, inner, many, each, function)
    chosen, hidden = b.keep(_CHOSEN, b.capacity * each, np.int64), b.keep("hidden of experts", b.capacity * each * inner)
    sizes, to = Descriptor((Value(ROWS), width, inner, many, each, function)), b.write(out)
    if block_kind(b.graph.tensors[op.inputs[slots[0][0]]], experts=True) is not None:
        packed = [b.store.get(f"{op.inputs[s[0]]} {n}", partial(_groups, b, op, s, n)) for n, s in enumerate(slots)]
        room, grain = experts.experts_groups_scratch(largest, *(p.shape for p in packed)), LANES
        kernels: tuple[Any, Any] = (experts.gate_experts_groups_f32, experts.down_experts_groups_f32)
        weights: list[tuple[Array, ...]] = [(p.data, p.shape) for p in packed]
    else:
        room, grain, kernels = experts.experts_scratch(largest), COLS, (experts.gate_experts_f32, experts.down_experts_f32)
        weights = [(_floats(b, op, s, n),) for n, s in enumerate(slots)]
    gates, ups, downs = weights
    for kernel, head, columns, reads, writes in (
        (kernels[0], (b.read(x), chosen, *gates, *ups, hidden), inner, [x, _CHOSEN], ["hidden of experts"]),
        (kernels[1], (hidden, b.read(share), chosen, *downs, to), width, [share, _CHOSEN, "hidden of experts"], [out]),
    ):
        places = columns_in_parts(columns, b.threads, grain)
        tails = [(b.turn("experts", room, len(places)), sizes, first, last) for first, last in places]
        b.emit([Call(kernel, (), (*head, *tail)) for tail in tails], reads, writes)


def _half(b: Building, op: Op, part: int) -> slice:
    """The rows of an expert's tensor that are its gate, its up or its down matrix."""
    if not op.attr_int("joined", 0) or part > 1:
        return slice(None)
    inner = b.graph.tensors[op.inputs[3]].shape[1] // 2
    return slice(part * inner, (part + 1) * inner)


def _floats(b: Building, op: Op, slots: Sequence[int], part: int) -> Array:
    """One kind of matrix of all experts, each packed, one after the other."""
    own = _half(b, op, part)
    stacked = [constant_value(b.graph.tensors[op.inputs[s]]).astype(np.float32) for s in slots]
    each = [matrix for s in stacked for matrix in (s if s.ndim > 2 else [s])]
    return aligned_copy(np.concatenate([pack_b_f32(np.ascontiguousarray(matrix[own]), True) for matrix in each]))


def _groups(b: Building, op: Op, slots: Sequence[int], part: int) -> PackedGroups:
    """The same in blocks: the data of all experts, and their common shape."""
    packed = []
    for slot in slots:
        tensor = b.graph.tensors[op.inputs[slot]]
        *lead, n, k = tensor.shape
        whole = gguf_weights(tensor, (math.prod(lead) * n, k))
        for first in range(0, len(whole.codes), n):
            packed.append(pack_groups(_rows(_rows(whole, slice(first, first + n)), _half(b, op, part))))
    return PackedGroups(aligned_copy(np.concatenate([p.data for p in packed])), packed[0].shape)


def _rows(w: Groups, rows: slice) -> Groups:
    larger = None if w.larger is None else np.ascontiguousarray(w.larger[:, rows])
    return Groups(w.codes[rows], w.bits, w.group, w.scales[rows], None if w.mins is None else w.mins[rows], larger)
