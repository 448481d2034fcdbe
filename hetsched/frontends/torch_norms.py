"""Normalisations, softmax and reductions of an exported program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hetsched.frontends.torch_builder import Builder
from hetsched.graph import DType

Lower = Callable[[Builder], None]


def _one(b: Builder, what: str, size: int, value: float, dtype: DType) -> str:
    """A constant vector in place of a weight that is left out."""
    return b.constant(what, np.full(size, value, dtype.numpy))


def _batch_norm(b: Builder) -> None:
    if not b.has("running_mean") and b.shape(b.tensor_of("input"))[:1] == (1,):  # of one image: instance normalisation, decomposed
        _instance_norm(b)
        return
    if b.flag("training") or not b.has("running_mean"):
        raise b.unsupported("it normalises by the batch's own statistics: export the model in evaluation mode (model.eval())")
    x = b.tensor_of("input")
    channels, dtype = b.shape(x)[1] if len(b.shape(x)) > 1 else 0, b.dtype(b.tensor_of("running_mean"))
    scale = b.maybe("weight") or _one(b, "scale", channels, 1, dtype)
    bias = b.maybe("bias") or _one(b, "bias", channels, 0, dtype)
    inputs = (x, scale, bias, b.tensor_of("running_mean"), b.tensor_of("running_var"))
    b.put("BatchNormalization", inputs, {"epsilon": float(b.number_of("eps", 1e-5))})


def _layer_norm(b: Builder) -> None:
    x, shape = b.tensor_of("input"), b.ints_of("normalized_shape")
    rank = len(b.shape(x))
    if not 0 < len(shape) <= rank or list(b.shape(x)[rank - len(shape) :]) != shape:
        raise b.bad(f"it normalises {shape}, which are not the last axes of {list(b.shape(x))}")
    dtype = b.dtype(x)
    weight = b.maybe("weight") or b.constant("scale", np.ones(shape, dtype.numpy))
    bias = (b.tensor_of("bias"),) if b.has("bias") else ()
    b.put("LayerNormalization", (x, weight, *bias), {"axis": -len(shape), "epsilon": float(b.number_of("eps", 1e-5))})


def _rms_norm(b: Builder) -> None:
    """``x / sqrt(mean(x²) + eps) * weight``, written out as exporters do."""
    x, shape = b.tensor_of("input"), b.ints_of("normalized_shape")
    dtype = b.dtype(x)
    wide = b.cast(x, DType.F32, what="wide") if dtype is DType.F16 else x
    kind = b.dtype(wide)
    axes = b.ints("axes", list(range(-len(shape), 0)))
    square = b.emit("Pow", (wide, b.number(2, kind)), what="square")
    mean = b.emit("ReduceMean", (square, axes), {"keepdims": 1}, what="mean")
    eps = float(b.number_of("eps", float(np.finfo(np.float32).eps) if not dtype.is_float else _epsilon(dtype)))
    root = b.emit("Sqrt", (b.emit("Add", (mean, b.number(eps, kind)), what="eps"),), what="root")
    normal = b.emit("Mul", (wide, b.emit("Reciprocal", (root,), what="inverse")), what="normal")
    normal = b.cast(normal, dtype, what="narrow")
    if b.has("weight"):
        b.put("Mul", (normal, b.tensor_of("weight")))
    else:
        b.alias(normal)


def _epsilon(dtype: DType) -> float:
    return 2.0**-7 if dtype is DType.BF16 else float(np.finfo(dtype.numpy).eps)


def _group_norm(b: Builder) -> None:
    """Group normalisation as exporters write it: instance normalisation of the groups, then scale and bias per channel."""
    x = b.tensor_of("input")
    groups = b.int_of("num_groups" if b.has("num_groups") else "group")
    shape = b.shape(x)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise b.bad(f"it has {groups} groups for an input {list(shape)}")
    dtype = b.dtype(x)
    flat = b.reshape(x, (shape[0], groups, -1), what="groups")
    ones, zeros = _one(b, "ones", groups, 1, dtype), _one(b, "zeros", groups, 0, dtype)
    normal = b.emit("InstanceNormalization", (flat, ones, zeros), {"epsilon": float(b.number_of("eps", 1e-5))}, what="normal")
    y = b.reshape(normal, shape, what="channels")
    for name, kind in (("weight", "Mul"), ("bias", "Add")):
        if b.has(name):
            vector = b.reshape(b.tensor_of(name), (shape[1], *[1] * (len(shape) - 2)), what=f"{name}_column")
            y = b.emit(kind, (y, vector), what=name)
    b.alias(y)


def _instance_norm(b: Builder) -> None:
    if b.has("running_mean") and not b.flag("use_input_stats", True):
        _batch_norm(b)
        return
    x = b.tensor_of("input")
    channels, dtype = b.shape(x)[1], b.dtype(x)
    scale = b.maybe("weight") or _one(b, "scale", channels, 1, dtype)
    bias = b.maybe("bias") or _one(b, "bias", channels, 0, dtype)
    b.put("InstanceNormalization", (x, scale, bias), {"epsilon": float(b.number_of("eps", 1e-5))})


def _softmax(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.cast(b.tensor_of("self"), b.meta().dtype)
        if not b.shape(x):
            raise b.unsupported("of a single number it is not supported")
        b.put(kind, (x,), {"axis": b.axis(b.int_of("dim"), len(b.shape(x)))})

    return lower


def _axes(b: Builder, name: str = "dim") -> Sequence[int]:
    """The axes that are reduced, counted from the front; all where none are given."""
    rank = len(b.shape(b.tensor_of("self")))
    given = b.ints_of(name, []) or list(range(rank))
    return sorted(b.axis(a, rank) for a in given) if rank else []


def _reduce(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.cast(b.tensor_of("self"), b.meta().dtype)
        _put_reduced(b, kind, x, _axes(b), b.flag("keepdim"))

    return lower


def _put_reduced(b: Builder, kind: str, x: str, axes: Sequence[int], keep: bool) -> None:
    if not axes:
        b.alias(x)
        return
    b.put(kind, (x, b.ints("axes", list(axes))), {"keepdims": int(keep)})


def _extreme(kind: str) -> Lower:
    """``max`` and ``min``: of all elements, along an axis (with indices), or of two tensors."""

    def lower(b: Builder) -> None:
        if b.has("other"):
            dtype = b.meta().dtype
            b.put(kind, (b.operand("self", dtype), b.operand("other", dtype)))
            return
        x = b.tensor_of("self")
        axes = _axes(b)
        _put_reduced(b, f"Reduce{kind}", x, axes, b.flag("keepdim"))
        if len(b.current.outputs) > 1 and b.current.outputs[1]:
            b.put(f"Arg{kind}", (x,), {"axis": axes[0], "keepdims": int(b.flag("keepdim"))}, k=1)

    return lower


def _arg(kind: str) -> Lower:
    def lower(b: Builder) -> None:
        x = b.tensor_of("self")
        if not b.has("dim"):
            flat = b.reshape(x, (-1,), what="flat")
            b.put(kind, (flat,), {"axis": 0, "keepdims": 0})
            return
        b.put(kind, (x,), {"axis": b.axis(b.int_of("dim"), len(b.shape(x))), "keepdims": int(b.flag("keepdim"))})

    return lower


def _truth(kind: str) -> Lower:
    """``any`` and ``all``, by way of integers."""

    def lower(b: Builder) -> None:
        x = b.cast(b.cast(b.tensor_of("self"), DType.BOOL), DType.I32, what="numbers")
        axes, keep = _axes(b), b.flag("keepdim")
        reduced = b.emit(kind, (x, b.ints("axes", list(axes))), {"keepdims": int(keep)}) if axes else x
        b.alias(b.cast(reduced, DType.BOOL, what="truth"))

    return lower


def _variance(root: bool) -> Lower:
    def lower(b: Builder) -> None:
        x = b.tensor_of("self")
        axes, dtype, keep = _axes(b), b.dtype(x), b.flag("keepdim")
        count = math.prod(b.shape(x)[a] for a in axes)
        correction = float(b.number_of("correction", int(b.flag("unbiased", True))))
        if count <= correction:
            raise b.unsupported(f"the variance of {count} elements has no value")
        names = b.ints("axes", list(axes))
        centred = b.emit("Sub", (x, b.emit("ReduceMean", (x, names), {"keepdims": 1}, what="mean")), what="centred")
        square = b.emit("Mul", (centred, centred), what="square")
        y = b.emit("ReduceMean", (square, names), {"keepdims": int(keep)}, what="variance")
        if correction:
            y = b.emit("Mul", (y, b.number(count / (count - correction), dtype)), what="corrected")
        b.alias(b.emit("Sqrt", (y,), what="root") if root else y)

    return lower


def _norm(b: Builder) -> None:
    order = float(b.number_of("ord" if b.has("ord") else "p", 2))
    x, axes, keep = b.tensor_of("self"), _axes(b), b.flag("keepdim")
    if order in {1, 2}:
        b.put("ReduceL1" if order == 1 else "ReduceL2", (x, b.ints("axes", list(axes))), {"keepdims": int(keep)})
    elif math.isinf(order):
        b.put("ReduceMax" if order > 0 else "ReduceMin", (b.emit("Abs", (x,)), b.ints("axes", list(axes))), {"keepdims": int(keep)})
    else:
        raise b.unsupported(f"a norm of order {order} is not supported")


def _cumsum(b: Builder) -> None:
    x = b.cast(b.tensor_of("self"), b.meta().dtype)
    axis = b.axis(b.int_of("dim"), len(b.shape(x)))
    b.put("CumSum", (x, b.constant("axis", np.array(axis, np.int64))))


def _top_k(b: Builder) -> None:
    x = b.tensor_of("self")
    axis = b.axis(b.int_of("dim", -1), len(b.shape(x)))
    count = b.int_of("k") if b.has("k") else b.shape(x)[axis]
    largest = b.flag("largest", True) if b.has("k") else b.flag("descending")
    b.put_many("TopK", (x, b.ints("k", [count])), {"axis": axis, "largest": int(largest), "sorted": 1})


_BATCH_NORMS = (
    "batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit",
)  # fmt: skip


def _arg_sort(b: Builder) -> None:
    x = b.tensor_of("self")
    axis = b.axis(b.int_of("dim", -1), len(b.shape(x)))
    attrs = {"axis": axis, "largest": int(b.flag("descending")), "sorted": 1}
    b.alias(b.emit_many("TopK", (x, b.ints("k", [b.shape(x)[axis]])), 2, attrs)[1])


LOWERINGS: dict[str, Lower] = {
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    "layer_norm": _layer_norm, "native_layer_norm": _layer_norm, "rms_norm": _rms_norm, "_fused_rms_norm": _rms_norm,
    "group_norm": _group_norm, "native_group_norm": _group_norm, "instance_norm": _instance_norm,
    "softmax": _softmax("Softmax"), "_softmax": _softmax("Softmax"), "_safe_softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"), "_log_softmax": _softmax("LogSoftmax"),
    "mean": _reduce("ReduceMean"), "sum": _reduce("ReduceSum"), "amax": _reduce("ReduceMax"), "amin": _reduce("ReduceMin"),
    "prod": _reduce("ReduceProd"), "logsumexp": _reduce("ReduceLogSumExp"), "max": _extreme("Max"), "min": _extreme("Min"),
    "argmax": _arg("ArgMax"), "argmin": _arg("ArgMin"), "any": _truth("ReduceMax"), "all": _truth("ReduceMin"),
    "var": _variance(root=False), "std": _variance(root=True), "linalg_vector_norm": _norm, "norm": _norm, "cumsum": _cumsum,
    "topk": _top_k, "sort": _top_k, "argsort": _arg_sort,
}  # fmt: skip
