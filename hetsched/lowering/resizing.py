"""Which forms of Resize other formats have: they know sizes only, not factors, and few ways to round."""

from __future__ import annotations

from hetsched.graph import Graph, Op

_HALF_PIXEL = frozenset({"half_pixel", "pytorch_half_pixel"})


def is_repeat(graph: Graph, op: Op) -> bool:
    """Whether nearest values with whole factors repeat each value."""
    have, wanted = (graph.tensors[n].shape for n in (op.inputs[0], op.outputs[0]))
    if op.attr_str("mode", "nearest") != "nearest" or any(w % h for w, h in zip(wanted, have, strict=True)) or not by_sizes(graph, op):
        return False
    where, rounding = op.attr_str("coordinate_transformation_mode", "half_pixel"), op.attr_str("nearest_mode", "round_prefer_floor")
    return (where == "asymmetric" and rounding == "floor") or (where in _HALF_PIXEL and rounding.startswith("round_prefer"))


def is_linear(graph: Graph, op: Op) -> bool:
    """Whether it is plain linear interpolation of images, between sizes."""
    wanted = graph.tensors[op.outputs[0]].shape
    return op.attr_str("mode", "nearest") == "linear" and min(wanted[2:]) > 1 and by_sizes(graph, op)


def by_sizes(graph: Graph, op: Op) -> bool:
    """Whether the factors are the sizes' ratios, and values are not averaged over where it shrinks."""
    have, wanted = (graph.tensors[n].shape for n in (op.inputs[0], op.outputs[0]))
    shrinks = any(w < h for w, h in zip(wanted, have, strict=True))
    if (shrinks and op.attr_int("antialias", 0)) or op.attr_str("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    if not name:
        return True
    if not graph.tensors[name].is_constant:
        return False
    axes = op.attr_ints("axes", ()) or range(len(have))
    factors = graph.tensors[name].numpy().reshape(-1).tolist()
    return all(abs(f * have[a] - wanted[a]) < 1e-3 for a, f in zip(axes, factors, strict=True))
