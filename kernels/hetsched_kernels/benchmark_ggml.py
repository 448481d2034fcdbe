"""The same products in ggml (llama.cpp) on one thread, where the package llama_cpp is installed.

Its shared libraries are called directly, through ``ctypes``; weights lie in the buffer type that repacks Q4_0, so that ggml takes
its fast path, and one graph holds a product with each of several weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from hetsched_kernels.arrays import Array

_F32, _Q4_0 = 0, 2
_REPACK: Final = b"CPU_REPACK"
_POINTERS = (
    "ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_backend_cpu_init",
    "ggml_backend_alloc_ctx_tensors_from_buft", "ggml_backend_get_default_buffer_type", "ggml_backend_get_device",
    "ggml_backend_dev_backend_reg", "ggml_backend_reg_get_proc_address", "ggml_backend_tensor_set", "ggml_build_forward_expand",
    "ggml_backend_cpu_set_n_threads", "ggml_backend_tensor_get",
)  # fmt: skip


#: What ggml reports to: it would print a line a weight.
_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)


class _Params(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Ggml:
    """ggml's functions, found by name in its libraries."""

    def __init__(self, folder: Path) -> None:
        names = ("libggml-base.so", "libggml-cpu.so")
        self._libraries = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in names]
        for name in _POINTERS:
            self.function(name).restype = ctypes.c_void_p
        self.function("ggml_log_set")(_SILENT, None)
        self.function("ggml_backend_buft_name").restype = ctypes.c_char_p
        self.function("ggml_backend_graph_compute").restype = ctypes.c_int

    def function(self, name: str) -> Any:
        """A function of either library."""
        for library in self._libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise OSError(f"ggml has no function {name}")

    def __call__(self, name: str, *args: Any) -> Any:
        """Call a function with pointers, sizes and structures."""
        return self.function(name)(*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in args))


def _repacking(ggml: _Ggml, backend: int) -> int | None:
    """The buffer type that repacks weights for this processor; None where this ggml has none."""
    registry = ggml("ggml_backend_dev_backend_reg", ggml("ggml_backend_get_device", backend))
    extra = ggml("ggml_backend_reg_get_proc_address", registry, ctypes.c_char_p(b"ggml_backend_dev_get_extra_bufts"))
    if not extra:
        return None
    listed = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(extra)(ggml("ggml_backend_get_device", backend))
    for kind in listed:
        if not kind:
            return None
        if ggml("ggml_backend_buft_name", kind) == _REPACK:
            return int(kind)
    return None


def _tensor(ggml: _Ggml, context: int, kind: int, rows: int, columns: int) -> int:
    sizes = (ctypes.c_int64(columns), ctypes.c_int64(rows))
    return int(ggml("ggml_new_tensor_2d", context, ctypes.c_int(kind), *sizes))


def _fill(ggml: _Ggml, tensor: int, values: Array) -> None:
    source = np.ascontiguousarray(values)
    ggml("ggml_backend_tensor_set", tensor, source.ctypes.data, ctypes.c_size_t(0), ctypes.c_size_t(source.nbytes))


def repacked_runner(blocks: Sequence[Array], n: int, x: Array) -> tuple[Callable[[], Any], Callable[[], Array]] | None:
    """A call of products with each of several Q4_0 weights, and the first one's result; None without llama_cpp or a repacking ggml.

    Args:
        blocks: uint8, the blocks of a weight [n, k] each.
        n: rows of a weight.
        x: float32 [m, k].
    """
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    try:
        ggml = _Ggml(Path(spec.origin).parent / "lib")
    except OSError:
        return None
    backend = ggml("ggml_backend_cpu_init")
    ggml("ggml_backend_cpu_set_n_threads", backend, ctypes.c_int(1))
    repacked = _repacking(ggml, backend)
    if repacked is None:
        return None
    weights, others = (ggml("ggml_init", _Params(16 << 20, None, True)) for _ in range(2))
    tensors = [_tensor(ggml, weights, _Q4_0, n, x.shape[1]) for _ in blocks]
    ggml("ggml_backend_alloc_ctx_tensors_from_buft", weights, repacked)
    for tensor, values in zip(tensors, blocks, strict=True):
        _fill(ggml, tensor, values)
    source, graph = _tensor(ggml, others, _F32, *x.shape), ggml("ggml_new_graph", others)
    products = [ggml("ggml_mul_mat", others, tensor, source) for tensor in tensors]
    for product in products:
        ggml("ggml_build_forward_expand", graph, product)
    ggml("ggml_backend_alloc_ctx_tensors_from_buft", others, ggml("ggml_backend_get_default_buffer_type", backend))
    _fill(ggml, source, x)

    def result() -> Array:
        out = np.empty((x.shape[0], n), np.float32)
        ggml("ggml_backend_tensor_get", products[0], out.ctypes.data, ctypes.c_size_t(0), ctypes.c_size_t(out.nbytes))
        return out

    return lambda: ggml("ggml_backend_graph_compute", backend, graph), result
