"""Calibration samples from ``.npz`` files: arrays by input name, with a leading axis of samples."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import Graph, Tensor
from hetsched.runtime.inputs import first_value, is_state

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
#: All arrays of all files together.
MAX_BYTES = 4 << 30


def read_samples(graph: Graph, files: Sequence[Path]) -> list[Feeds]:
    """The samples of all files, in order.

    An array is ``[samples, *shape]`` for an input of that shape, or samples joined along the input's own first axis
    (``[samples * batch, ...]``), or one sample. States that a file leaves out have their first value (zero, as a rule).

    Raises:
        OptionError: a file is absent, no npz or too large; a name, shape or type does not fit the model; a value is NaN or
            infinite; arrays have different numbers of samples, or none.
    """
    if not files:
        raise OptionError("no inputs are given: name at least one .npz file with arrays for the model's inputs")
    samples: list[Feeds] = []
    budget = MAX_BYTES
    for path in files:
        budget -= _unpacked_bytes(path)
        if budget < 0:
            raise OptionError(f"the inputs up to {path} unpack to more than 4 GiB: give fewer samples")
        samples.extend(samples_of(graph, _arrays(path), str(path)))
    return samples


def samples_of(graph: Graph, arrays: Mapping[str, Array], where: str) -> list[Feeds]:
    """The samples in ``arrays``, see :func:`read_samples`; ``where`` names them in messages."""
    unknown = next((n for n in arrays if n not in graph.inputs), None)
    if unknown is not None:
        raise OptionError(f"{where} has an array {unknown!r}, and the model has no such input: it reads {', '.join(graph.inputs)}")
    split: dict[str, list[Array]] = {}
    for name in graph.inputs:
        if name in arrays:
            split[name] = _split(graph.tensors[name], arrays[name], where)
        elif not is_state(graph, name):
            raise OptionError(f"{where} has no array {name!r}: the model reads {', '.join(graph.inputs)}")
    counts = {name: len(parts) for name, parts in split.items()}
    first = next(iter(counts), None)
    odd = next((n for n in counts if first is not None and counts[n] != counts[first]), None)
    if first is None or odd is not None:
        what = "" if first is None or odd is None else f"{counts[first]} samples of {first!r} and {counts[odd]} of {odd!r}"
        raise OptionError(f"{where} has {what or 'no samples'}: every input needs as many")
    states = {n: first_value(graph, graph.tensors[n]) for n in graph.inputs if n not in split}
    return [{**states, **{n: parts[i] for n, parts in split.items()}} for i in range(counts[first])]


def _split(tensor: Tensor, array: Array, where: str) -> list[Array]:
    """The samples in one array."""
    want = tensor.dtype.numpy
    label = f"{where}: {tensor.name!r}"
    if array.dtype != want:
        raise OptionError(f"{label} is {array.dtype}, and the model reads {want}: convert it")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise OptionError(f"{label} holds values that are NaN or infinite: give real inputs")
    shape = tensor.shape
    if array.shape[1:] == shape and array.ndim == len(shape) + 1:
        parts = [array[i] for i in range(len(array))]
    elif array.ndim == len(shape) and shape and array.shape[1:] == shape[1:] and shape[0] and len(array) % shape[0] == 0:
        parts = [array[i : i + shape[0]] for i in range(0, len(array), shape[0])]
    elif array.shape == shape:
        parts = [array]
    else:
        raise OptionError(
            f"{label} has the shape {list(array.shape)}, and the model reads {list(shape)}: give [samples, {', '.join(map(str, shape))}]"
        )
    if not parts:
        raise OptionError(f"{label} is empty: give at least one sample")
    return [np.ascontiguousarray(p) for p in parts]


def _unpacked_bytes(path: Path) -> int:
    """Size of all arrays of a file: a small archive may hold gigabytes of zeros."""
    if not path.is_file():
        raise OptionError(f"there is no input file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(info.file_size for info in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise OptionError(f"{path} is not a readable .npz file ({e}): write it with numpy.savez") from e


def _arrays(path: Path) -> Feeds:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except Exception as e:
        raise OptionError(f"{path} is not a readable .npz file ({e}): write it with numpy.savez") from e
