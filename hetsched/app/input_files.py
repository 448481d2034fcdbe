"""Inputs of a run from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import Graph

MAX_INPUT_BYTES = 4 << 30
_HEADER_BYTES = 1 << 16


def read_inputs(path: Path, graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Inputs from an ``.npz`` file (no pickle), checked against the graph's inputs.

    Raises:
        OptionError: absent, not an npz, or names, shapes or types that do not fit.
    """
    if not path.is_file():
        raise OptionError(f"there is no input file {path}")
    if path.stat().st_size > MAX_INPUT_BYTES:
        raise OptionError(f"the input file {path} is larger than 4 GiB")
    try:
        sizes = _array_bytes(path)
        unknown = next((n for n in sizes if n not in graph.inputs), None)
        if unknown is not None:
            raise OptionError(f"{path} has an array {unknown!r}, which the model does not read: its inputs are {', '.join(graph.inputs)}")
        for name in graph.inputs:
            if sizes.get(name, 0) > graph.tensors[name].nbytes + _HEADER_BYTES:
                raise OptionError(f"{path}: {name!r} has {sizes[name]} bytes, the plan needs {graph.tensors[name].nbytes}")
        with np.load(path, allow_pickle=False) as archive:
            feeds = {k: archive[k] for k in graph.inputs if k in archive.files}
    except OptionError:
        raise
    except Exception as e:
        raise OptionError(f"{path} is not a readable .npz file ({e}): write it with numpy.savez") from e
    for name in graph.inputs:
        want = graph.tensors[name]
        if name not in feeds:
            raise OptionError(f"{path} has no array {name!r}: the model reads {', '.join(graph.inputs)}")
        if feeds[name].shape != want.shape or feeds[name].dtype != want.dtype.numpy:
            have = f"{feeds[name].dtype}{list(feeds[name].shape)}"
            raise OptionError(f"{path}: {name!r} is {have}, the plan needs {want.dtype.numpy}{list(want.shape)}")
    return {k: np.asarray(feeds[k], order="C") for k in graph.inputs}  # ascontiguousarray would make a scalar a list


def _array_bytes(path: Path) -> dict[str, int]:
    """Unpacked size of each array of an ``.npz`` file: a small archive may hold gigabytes of zeros."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
