"""Linked machine code that is kept between processes, so that a later one calls kernels without a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from hetsched.runtime import executable_cache as cache
from hetsched.runtime.executable_files import Contents
from hetsched_kernels.native import Native, usable
from hetsched_kernels.tables import Image


class Kernels(NamedTuple):
    """Kernels in linked machine code, and their symbols."""

    native: Native
    symbols: Sequence[str]


def image_about(image: Image) -> dict[str, Any]:
    """What the manifest of a file says of an image; its bytes are the array ``image``."""
    return {"symbols": dict(image.symbols), "inside": image.inside, "imports": dict(image.imports)}


def native_of(contents: Contents) -> Native:
    """The image of a file, in memory.

    Raises:
        OSError: this system does not let its code run.
    """
    about = contents.manifest["image"]
    return Native(Image(contents.arrays["image"].tobytes(), about["symbols"], tuple(about["inside"]), about["imports"]))


def kernels(*names: str) -> Kernels | None:
    """Kernels without element types, each as ``module:function`` of :mod:`hetsched_kernels`; None where they cannot be linked."""
    if not usable():
        return None
    key = cache.key_for({"kernels": names})
    found = cache.find(key)
    if found is None and (found := _linked(names)) is not None:
        cache.store(key, found)
    with suppress(OSError):
        return None if found is None else Kernels(native_of(found), found.manifest["symbols"])
    return None


def _linked(names: Sequence[str]) -> Contents | None:
    """The code of kernels that the compiler made, or kept."""
    from hetsched_kernels import objects
    from hetsched_kernels.elf import UnlinkableError

    keys = [(getattr(import_module(f"hetsched_kernels.{module}"), name), ()) for module, _, name in (n.partition(":") for n in names)]
    try:
        image = objects.link(keys)
    except UnlinkableError:
        return None
    manifest = {"files": [], "image": image_about(image), "symbols": [objects.symbol_of(*k) for k in keys]}
    return Contents(manifest, {"image": np.frombuffer(image.data, np.uint8)})
