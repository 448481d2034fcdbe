"""Layers of a step whose memory does not grow, convolutions over the last tokens and selective scans: states change in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched.language.run_values import Value
from hetsched.language.step_products import columns_in_parts
from hetsched.language.step_values import ROWS
from hetsched.reference.gguf_types import constant_value
from hetsched.runtime.arena import aligned_copy
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.program import Call
from hetsched_kernels.state_space import causal_conv_f32, selective_scan_f32

Array = npt.NDArray[Any]


def convolution(b: Building, one: Fused) -> None:
    """CausalConv: one sequence's new rows after its last inputs."""
    op, x, out = one.op, one.reads[0], one.writes[0]
    channels, state = b.width(x), b.state(op.outputs[1])
    taps = _floats(b.graph, op.inputs[1]).reshape(channels, -1)
    bias = b.constant(op.inputs[2]) if op.inputs[2] else NO_F32
    args = (b.read(x), aligned_copy(taps.T.reshape(-1)), bias, state, b.write(out), state, Value(ROWS), channels, taps.shape[1])
    b.emit([Call(causal_conv_f32, (), args)], [x], [out, op.outputs[1]])


def scan(b: Building, one: Fused) -> None:
    """SelectiveScan: channels divided among the threads."""
    op, out = one.op, one.writes[0]
    u, step, into, outward = (b.read(op.inputs[i]) for i in (0, 1, 3, 4))
    channels, state, decay = b.width(op.inputs[0]), b.state(op.outputs[1]), _floats(b.graph, op.inputs[2])
    decay = aligned_copy(-np.exp(decay) if op.attr_int("logarithmic", 0) else decay)
    tail = (b.constant(op.inputs[5]), state, b.write(out), state, Value(ROWS), channels, decay.size // channels)
    places = columns_in_parts(channels, b.threads)
    b.emit(
        [Call(selective_scan_f32, (), (u, step, decay, into, outward, *tail, *place)) for place in places], one.reads, [out, op.outputs[1]]
    )


def _floats(graph: Graph, name: str) -> Array:
    return constant_value(graph.tensors[name]).astype(np.float32).reshape(-1)
