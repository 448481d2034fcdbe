"""Compiled segments of the NPU as files: EPContext models with the context binary inside, one set for each SoC.

The provider itself does not refuse a context of another SoC (the emulator runs it), so the header beside each file says what it was
made for, and the file's hash. Both are checked before the vendor's library sees a byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hetsched.errors import DelegateError
from hetsched.files import write_atomically
from hetsched.runtime.delegates.qnn_target import Target

#: A header is a few lines.
_MAX_HEADER = 1 << 16


@dataclass(frozen=True, slots=True)
class Header:
    """What a context was made of and for. ``model`` and ``sha256`` are hashes of the segment's model and of the file."""

    soc: str
    htp_arch: str
    soc_model: str
    runtime: str
    model: str
    sha256: str


def key_of(model: bytes, target: Target, runtime: str, options: Mapping[str, str]) -> str:
    """Hash of all that a context depends on."""
    text = json.dumps([hashlib.sha256(model).hexdigest(), asdict(target), runtime, sorted(options.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def folder_for(target: Target) -> Path:
    """Where the contexts of a SoC are kept: below ``$XDG_CACHE_HOME/hetsched`` or ``~/.cache/hetsched``."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "hetsched" / "qnn" / f"{target.soc_model}-v{target.htp_arch}"


def write_header(context: Path, target: Target, runtime: str, model: bytes) -> None:
    """Say beside a context what it was made of and for."""
    header = Header(
        target.soc, target.htp_arch, target.soc_model, runtime, hashlib.sha256(model).hexdigest(), _sha256(context),
    )  # fmt: skip
    write_atomically(context.with_suffix(".json"), (json.dumps(asdict(header), sort_keys=True, indent=1) + "\n").encode())


def check_context(context: Path, target: Target) -> Header:
    """The header of a context that may be run on ``target``.

    Raises:
        DelegateError: it is absent or damaged, or was made for another SoC.
    """
    header = _read_header(context)
    if (header.htp_arch, header.soc_model) != (target.htp_arch, target.soc_model):
        made_for = Target(header.soc, header.htp_arch, header.soc_model)
        raise DelegateError(f"the context binary {context} was made for {made_for} and does not run on {target}: compile it again")
    if _sha256(context) != header.sha256:
        raise DelegateError(f"the context binary {context} is damaged: its bytes are not those that were written; compile it again")
    return header


def _read_header(context: Path) -> Header:
    path = context.with_suffix(".json")
    if not context.is_file() or not path.is_file():
        raise DelegateError(f"there is no context binary {context} with its header {path.name}")
    try:
        if path.stat().st_size > _MAX_HEADER:
            raise ValueError("it is too long")
        raw: Any = json.loads(path.read_bytes())
        header = Header(**raw)
        if not all(isinstance(v, str) for v in raw.values()):
            raise ValueError("a field is not a text")
    except (ValueError, TypeError, OSError) as e:
        raise DelegateError(f"{path} is not the header of a context binary ({e}): compile the segment again") from e
    return header


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
