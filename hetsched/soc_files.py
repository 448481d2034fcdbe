"""Where SoC files are, and how one is read: an id or a path in, a validated :class:`~hetsched.socs.SoC` out.

SoC files ship inside the wheel as ``hetsched/soc_specs``; in a checkout they lie beside the package in ``soc_specs/``.
Both are looked at on every call (nothing is cached), so an edit in a checkout is seen at once. Only the wanted file is
parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched import plain_yaml, wrong_fields
from hetsched.errors import SoCError
from hetsched.soc_overrides import apply
from hetsched.socs import HOST, SoC

#: A SoC file is a few kilobytes; anything beyond this is refused unread.
MAX_FILE_BYTES = 1 << 20
_SUFFIXES = (".yaml", ".yml")


def soc_directory(package: Path | None = None) -> Path:
    """The folder that holds ``<vendor>/<id>.yaml``: package data where present, else the checkout's ``soc_specs``.

    Args:
        package: the folder of the ``hetsched`` package (default: this one's).

    Raises:
        SoCError: neither exists (a broken installation).
    """
    package = package or Path(__file__).parent
    for folder in (package / "soc_specs", package.parent / "soc_specs"):
        if folder.is_dir():
            return folder
    raise SoCError(f"no SoC files beside {package}: reinstall hetsched, or give the path of a SoC file")


def soc_paths(directory: Path | None = None) -> dict[str, Path]:
    """Id -> file of every SoC in the folder, sorted by id. No file is opened."""
    directory = directory or soc_directory()
    return {p.stem: p for p in sorted(directory.glob("*/*.yaml"), key=lambda p: p.stem)}


def list_socs(directory: Path | None = None) -> tuple[str, ...]:
    """Ids of the SoCs that ship with hetsched, sorted (``host`` is measured, so it is not among them)."""
    return tuple(soc_paths(directory))


def load_soc(id_or_path: str | Path, *, overrides: Mapping[str, str] | None = None, directory: Path | None = None) -> SoC:
    """Read and validate one SoC file.

    Args:
        id_or_path: a SoC id such as ``snapdragon-8-gen-3``, or the path of a YAML file.
        overrides: short name or dotted path -> value, such as ``{"npu.int8_tops": "100"}`` (:func:`overridden`).
        directory: folder to look ids up in (default: the one that ships with hetsched).

    Raises:
        SoCError: no such SoC, or the file is malformed; one sentence with the file, the field and the value.

    Examples:
        >>> load_soc("snapdragon-8-gen-3").vendor
        'Qualcomm'
    """
    path = _resolve(id_or_path, directory)
    soc = validate_soc(_read_mapping(path), str(path))
    if soc.overrides:
        raise SoCError(f"{path} has the field overrides, which only commands fill: write the values into the fields themselves")
    if not _is_path(id_or_path) and soc.id != path.stem:
        raise SoCError(f"{path}: the field id is {soc.id!r} but the file is called {path.name!r}; make them agree")
    return overridden(soc, overrides or {})


def overridden(soc: SoC, overrides: Mapping[str, str]) -> SoC:
    """What-if hardware: the SoC with some fields set, which it remembers in ``overrides``.

    Args:
        soc: any SoC, as it was loaded or with earlier overrides.
        overrides: short name or dotted path -> value (``docs/soc_files.md``).

    Raises:
        SoCError: no such field, or a value that it cannot have.

    Examples:
        >>> fast = overridden(load_soc("snapdragon-8-gen-3"), {"memory.bandwidth_gbps": "120"})
        >>> fast.memory.peak_bytes_s.value, fast.overrides
        (120000000000.0, {'memory.bandwidth_gbps': '120'})
    """
    if not overrides:
        return soc
    from pydantic import ValidationError

    raw = soc.model_dump(mode="json")
    apply(raw, overrides)
    raw["overrides"] = {**soc.overrides, **overrides}
    try:
        return SoC.model_validate(raw)
    except ValidationError as e:
        raise SoCError(_cannot_set(overrides, wrong_fields.fault(e, SoC, raw), soc.id)) from e


def _cannot_set(overrides: Mapping[str, str], fault: wrong_fields.Fault, soc_id: str) -> str:
    """The sentence on a field that was set to what it cannot be, or that makes another one wrong."""
    guilty = [f for f in overrides if f"{fault.path}.".startswith(f"{f}.") or f"{f}.".startswith(f"{fault.path}.")] or sorted(overrides)
    what = " and ".join(f"{f!r} to {overrides[f]!r}" for f in guilty)
    plain = len(guilty) == 1 and fault.path.removesuffix(".value") == guilty[0].removesuffix(".value")
    return f"cannot set {what} on {soc_id}: {fault.advice if plain else fault}"


def validate_soc(raw: Any, where: str) -> SoC:
    """Turn parsed YAML into a :class:`SoC`; ``where`` names the file in messages.

    Raises:
        SoCError: it is not a valid SoC.
    """
    from pydantic import ValidationError

    try:
        return SoC.model_validate(raw)
    except ValidationError as e:
        raise SoCError(f"{where} is not a valid SoC file: {wrong_fields.fault(e, SoC, raw)}") from e


def soc_sha256(soc: SoC) -> str:
    """SHA-256 of the SoC's canonical JSON, as plans store it (formatting and comments of the file do not matter)."""
    canonical = json.dumps(soc.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _is_path(id_or_path: str | Path) -> bool:
    if isinstance(id_or_path, Path):
        return True
    return "/" in id_or_path or "\\" in id_or_path or id_or_path.lower().endswith(_SUFFIXES)


def _resolve(id_or_path: str | Path, directory: Path | None) -> Path:
    if _is_path(id_or_path):
        path = Path(id_or_path)
        if not path.is_file():
            raise SoCError(f"there is no SoC file {str(path)!r}")
        return path
    known = soc_paths(directory)
    name = str(id_or_path)
    if name not in known:
        raise SoCError(unknown_soc(name, (*known, HOST)))
    return known[name]


def unknown_soc(name: str, known: tuple[str, ...]) -> str:
    """The message for a SoC id that does not exist, with near matches."""
    import difflib

    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return f"no SoC is called {name!r}: {hint} (a path to a YAML file works too)"


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise SoCError(f"{path} has {size} bytes: a SoC file has at most {MAX_FILE_BYTES}")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise SoCError(f"cannot read the SoC file {path}: {e}") from e
    try:
        raw = plain_yaml.load(text)
    except ValueError as e:
        raise SoCError(f"{path} {e}") from e
    if not isinstance(raw, dict):
        raise SoCError(f"{path} holds {wrong_fields.short(raw)}, not a mapping: a SoC file starts with 'schema_version: 1' and 'id: ...'")
    return raw
