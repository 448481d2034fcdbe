"""The GPU: which one there is, its device, its buffers and its compiled shaders.

``wgpu`` (the Python package) is imported here only, inside functions.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import DelegateError

#: Optional features that are asked for where the adapter has them.
_FEATURES = ("shader-f16", "mappable-primary-buffers")
_LIMITS = (
    "max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage", "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
)  # fmt: skip
#: Adapters that share memory with the CPU: a buffer that the CPU maps is as fast for the GPU as any other.
_SHARED_MEMORY = ("IntegratedGPU", "CPU")

LOST = "the GPU device was lost (its driver was reset): compile the plan again"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU as the driver describes it. ``software`` says that a CPU stands in for it: its times mean nothing."""

    handle: Any
    name: str
    driver: str
    software: bool
    features: frozenset[str]
    limits: dict[str, int]

    @property
    def has_f16(self) -> bool:
        """Whether shaders may compute in float16."""
        return "shader-f16" in self.features


@contextmanager
def _quiet() -> Iterator[None]:
    """While looking for adapters, libraries below print that this directory is not set where no desktop runs."""
    name = "XDG_RUNTIME_DIR"
    if name in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            del os.environ[name]


@cache
def find_adapter() -> Adapter | str:
    """The fastest adapter of this machine, or the reason why there is none."""
    try:
        import wgpu
    except (ImportError, OSError) as e:  # OSError: the package is there and its library does not load
        missing = isinstance(e, ImportError)
        return (
            "wgpu is not installed: install hetsched[wgpu]"
            if missing
            else f"wgpu's library does not load ({e}): install hetsched[wgpu] again"
        )
    logger = logging.getLogger("wgpu")
    if logger.level == logging.NOTSET or logger.level == logging.WARNING:
        logger.setLevel(logging.CRITICAL)  # what fails is raised, and said once
    try:
        with _quiet():
            handle = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as e:
        return f"no GPU adapter was found ({one_line(e)}): install a Vulkan, Metal or DirectX 12 driver"
    if handle is None:
        return "no GPU adapter was found: install a Vulkan, Metal or DirectX 12 driver"
    info = handle.info
    software = info["adapter_type"] == "CPU"
    shared = info["adapter_type"] in _SHARED_MEMORY
    features = frozenset(f for f in _FEATURES if f in handle.features and (shared or f != "mappable-primary-buffers"))
    driver = " ".join(str(v) for v in (info["description"], info["backend_type"]) if v)
    return Adapter(handle, str(info["device"]), driver, software, features, {k: int(handle.limits[k]) for k in _LIMITS})


def one_line(error: BaseException) -> str:
    """The line of a library's message that says what is wrong: of a shader's, the one with the error; else the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[-1] if lines else type(error).__name__).rstrip(".")


class Gpu:
    """An opened device. One is shared by all segments of the process: :func:`open_gpu`.

    Attributes:
        host_visible: buffers that the CPU maps are used by kernels directly; no staging copies.
    """

    def __init__(self, adapter: Adapter, host_visible: bool | None = None) -> None:
        import wgpu

        self.adapter = adapter
        self.limits = adapter.limits
        with _quiet():
            self.device = adapter.handle.request_device_sync(
                required_features=sorted(adapter.features), required_limits=dict(adapter.limits)
            )
        able = "mappable-primary-buffers" in adapter.features
        self.host_visible = able if host_visible is None else able and host_visible
        self.lost = False
        self._usage = wgpu.BufferUsage
        self._pipelines: dict[tuple[str, tuple[bool, ...]], tuple[Any, Any]] = {}

    def buffer(self, nbytes: int, use: str) -> Any:
        """A new buffer.

        Args:
            nbytes: its size.
            use: ``storage`` (of the device alone), ``uniform``, ``write`` and ``read`` (the CPU writes or reads, kernels use it) or
                ``staging`` (the CPU reads what was copied there).
        """
        u = self._usage
        kinds = {
            "storage": u.STORAGE | u.COPY_SRC | u.COPY_DST,
            "uniform": u.UNIFORM | u.COPY_DST,
            "write": u.STORAGE | (u.MAP_WRITE | u.COPY_SRC if self.host_visible else u.COPY_DST | u.COPY_SRC),
            "read": u.STORAGE | u.COPY_SRC | (u.MAP_READ if self.host_visible else 0),
            "staging": u.MAP_READ | u.COPY_DST,
        }
        mapped = use == "write" and self.host_visible
        return self.device.create_buffer(size=-(-max(nbytes, 16) // 16) * 16, usage=kinds[use], mapped_at_creation=mapped)

    def upload(self, buffer: Any, data: npt.NDArray[Any], offset: int = 0) -> None:
        """Write an array into a buffer through the queue."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if raw.size % 4:
            raw = np.concatenate([raw, np.zeros(-raw.size % 4, np.uint8)])
        if raw.size:
            self.device.queue.write_buffer(buffer, offset, raw)

    def pipeline(self, source: str, writable: tuple[bool, ...]) -> tuple[Any, Any]:
        """The compiled shader and its bind group layout; binding 0 is a uniform, the others are storage. Compiled once."""
        key = source, writable
        if key not in self._pipelines:
            kinds = ["uniform", *("storage" if w else "read-only-storage" for w in writable)]
            entries = [{"binding": i, "visibility": 4, "buffer": {"type": kind}} for i, kind in enumerate(kinds)]
            layout = self.device.create_bind_group_layout(entries=entries)
            whole = self.device.create_pipeline_layout(bind_group_layouts=[layout])
            module = self.device.create_shader_module(code=source)
            made = self.device.create_compute_pipeline(layout=whole, compute={"module": module, "entry_point": "main"})
            self._pipelines[key] = made, layout
        return self._pipelines[key]

    def why(self, error: BaseException) -> str:
        """What a library's error means, in a few words; notes that the device is lost."""
        text = str(error).lower()
        if "device is lost" in text or "device lost" in text or "devicelost" in text:
            self.lost = True
            return LOST
        if type(error).__name__ == "GPUOutOfMemoryError" or "not enough memory" in text or "out of memory" in text:
            return "the GPU has not enough memory: put fewer operators on it"
        return one_line(error)


_opened: list[Gpu] = []


def open_gpu() -> Gpu:
    """The process's device, opened on the first call, and again after it was lost.

    Raises:
        DelegateError: there is no adapter, or its driver gives no device.
    """
    if _opened and not _opened[0].lost:
        return _opened[0]
    adapter = find_adapter()
    if isinstance(adapter, str):
        raise DelegateError(f"the delegate 'wgpu' cannot run here: {adapter}")
    try:
        gpu = Gpu(adapter)
    except Exception as e:
        raise DelegateError(f"the GPU {adapter.name!r} gives no device: {one_line(e)}") from e
    _opened[:] = [gpu]
    return gpu


class _Immediately:
    """A loop for WebGPU's promises that runs their callbacks at once, on the thread that learns of the event."""

    def call_soon_threadsafe(self, function: Callable[..., object], *args: Any) -> None:
        """Call ``function``."""
        function(*args)

    def firstiter(self, generator: object) -> None:
        """What ``sys.set_asyncgen_hooks`` wants: the library finds this object through it."""


def when_mapped(buffers: Sequence[tuple[Any, str]], done: Callable[[BaseException | None], None]) -> None:
    """Call ``done`` once every ``(buffer, mode)`` is mapped, which is after all work submitted so far; with the error if one is not."""
    ended: list[BaseException | None] = []
    lock = threading.Lock()

    def one(error: BaseException | None) -> None:
        with lock:
            ended.append(error)
            last = len(ended) == len(buffers)
        if last:
            done(next((e for e in ended if e is not None), None))

    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=_Immediately().firstiter)
    try:
        for buffer, mode in buffers:
            promise = buffer.map_async(mode)
            promise.then(lambda _: one(None))
            promise.catch(one)
    finally:
        sys.set_asyncgen_hooks(*before)
