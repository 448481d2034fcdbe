"""Parameters, buffers and constants of an exported program: where their bytes are in the archive.

Archives of PyTorch 2.8 and newer store each weight as a raw member, described by JSON. Older ones hold them in a pickle, which is
not read: their weights are absent, so such a program can be planned and not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.errors import ModelError
from hetsched.frontends.torch_archive import Archive
from hetsched.frontends.torch_program import Meta, Program, Source, as_map, as_text, damaged, read_meta
from hetsched.graph import Role, Tensor, WeightRef

#: Constants up to this size are arrays in memory.
INLINE_BYTES = 4096


def constants(program: Program, archive: Archive) -> Iterator[tuple[Tensor, Source]]:
    """The tensors that the program holds, by the names that its modules give them, with the inputs of the graph that they are.

    Raises:
        ModelError: a weight is described twice differently, or does not lie in the file.
    """
    folders = ("weights", "constants")
    configs = {f: _config(archive, f) for f in folders}
    for source in program.sources:
        if source.kind not in {"parameter", "buffer", "tensor_constant"}:
            continue
        if source.name not in program.tensors:
            raise damaged(f"the {source.kind} {source.target!r} has no shape")
        meta = program.tensors[source.name]
        tensor = Tensor(source.target, _fixed(meta, source.target), meta.dtype, Role.WEIGHT, None, WeightRef())
        folder = next((f for f in folders if source.target in configs[f]), None)
        yield (tensor if folder is None else _placed(tensor, configs[folder][source.target], archive, folder)), source


def _config(archive: Archive, folder: str) -> Mapping[str, Any]:
    """What the archive says of the weights in one of its folders, by name."""
    model = archive.program.rpartition("/")[2].removesuffix(".json")
    name = f"{archive.folder}data/{folder}/{model}_{folder}_config.json"
    if name not in archive.members:
        return {}
    return as_map(archive.read_json(name).get("config"), f"the description of the {folder}")


def _fixed(meta: Meta, name: str) -> tuple[int, ...]:
    sizes = tuple(s for s in meta.sizes if isinstance(s, int))
    if len(sizes) != len(meta.sizes):
        raise damaged(f"the shape of the weight {name!r} is not fixed")
    return sizes


def _placed(tensor: Tensor, value: object, archive: Archive, folder: str) -> Tensor:
    """``tensor`` with its bytes, or without where they are in a pickle or compressed."""
    payload = as_map(value, f"the weight {tensor.name!r}")
    if payload.get("use_pickle") or payload.get("tensor_meta") is None:
        return tensor
    meta = read_meta(payload["tensor_meta"], tensor.name)
    if meta.dtype is not tensor.dtype or _fixed(meta, tensor.name) != tensor.shape:
        raise damaged(f"the weight {tensor.name!r} has two different shapes or types")
    member = as_text(payload.get("path_name"), f"the place of the weight {tensor.name!r}")
    place = archive.range_of(f"{archive.folder}data/{folder}/{member}")
    if place is None:
        return tensor
    offset, length = place
    start, strides = _layout(meta, tensor)
    if strides == _dense(tensor.shape):
        if length < start * tensor.dtype.bits // 8 + tensor.nbytes:
            raise _short(tensor, length)
        return _small(replace(tensor, data=WeightRef(archive.path, offset + start * tensor.dtype.bits // 8, tensor.nbytes)))
    if tensor.is_packed:
        return tensor
    last = start + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    if (last + 1) * tensor.dtype.numpy.itemsize > length:
        raise _short(tensor, length)
    stored = np.memmap(archive.path, tensor.dtype.numpy, "r", offset, (length // tensor.dtype.numpy.itemsize,))
    view = np.lib.stride_tricks.as_strided(stored[start:], tensor.shape, [s * stored.itemsize for s in strides], writeable=False)
    return replace(tensor, data=WeightRef(array=view))


def _layout(meta: Meta, tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    """First element and strides, in elements; strides of axes of length 1 say nothing and are made regular."""
    dense = _dense(tensor.shape)
    strides = tuple(d if n == 1 else s for s, d, n in zip(meta.strides, dense, tensor.shape, strict=False) if isinstance(s, int))
    if tensor.elements == 0:
        return 0, dense
    if len(strides) != len(dense) or any(s < 0 for s in strides) or not isinstance(meta.offset, int) or meta.offset < 0:
        raise damaged(f"the strides of the weight {tensor.name!r} are {list(meta.strides)}")
    return meta.offset, strides


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _short(tensor: Tensor, length: int) -> ModelError:
    return damaged(f"the weight {tensor.name!r} of shape {list(tensor.shape)} needs {tensor.nbytes} bytes and has {length}")


def _small(tensor: Tensor) -> Tensor:
    if tensor.nbytes > INLINE_BYTES or tensor.is_packed:
        return tensor
    return replace(tensor, data=WeightRef(array=np.array(tensor.numpy())))
