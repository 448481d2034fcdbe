"""Bundles: a folder with a manifest, the segments' files, golden vectors, and the checks that a reader makes first.

The manifest holds what a runner needs: versions, SHA-256 of every file, the segments in the plan's order with what each waits for,
inputs and outputs of the model, and how close to the golden outputs a run must come.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from hetsched import wrong_fields
from hetsched.errors import OptionError, PlanError
from hetsched.soc_quantities import Strict
from hetsched.versions import OPERATOR_SET, QUANTIZATION_SCHEMA, check_schemas

MANIFEST = "manifest.json"
#: Of the manifest. A reader takes its own and older ones that it still knows, of which there are none yet.
SCHEMA = 1
#: Least cosine of an output of a run with the golden output: of float plans, and of plans with integers, where a sum that rounds the
#: other way moves a value by a whole step (the rule of ``run --check``).
COSINE, COSINE_OF_INTEGERS = 0.9999, 0.99
_MAX_MANIFEST = 64 << 20


class BundleTensor(Strict):
    """An input or output, by the name that the file of its segment gives it (``file_name``)."""

    name: str
    file_name: str
    dtype: str
    shape: tuple[int, ...]


class BundleSegment(Strict):
    """A segment: where it runs, what it loads, and what must have ended before it starts."""

    index: int
    queue: str
    processor: str
    """``cpu``, ``gpu`` or ``npu``."""
    file: str
    """Path in the bundle; a folder for packages; empty where the segment is part of a file of the whole model."""
    inputs: tuple[BundleTensor, ...]
    outputs: tuple[BundleTensor, ...]
    waits: tuple[int, ...]
    """Segments on other queues; those before it on its own queue it waits for anyway."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Of the runtime, for this segment."""
    ops: tuple[str, ...]
    """The user's own nodes."""


class Golden(Strict):
    """Inputs and the outputs that they give: ``.npz`` files of the bundle."""

    inputs: str
    outputs: str
    made_by: str
    cosine: Annotated[float, Field(gt=0, le=1)]


class Manifest(Strict):
    """The contents of ``manifest.json``."""

    kind: Literal["hetsched bundle"] = "hetsched bundle"
    schema_version: int = SCHEMA
    quantization_schema: int = QUANTIZATION_SCHEMA
    operator_set: str = OPERATOR_SET
    hetsched: str
    """The version that wrote it."""
    target: str
    runtime: str
    """Its name."""
    minimum_runtime: str
    """The oldest version of it that reads these files."""
    model: str
    model_sha256: str
    soc: str
    predicted_latency_s: float
    inputs: tuple[BundleTensor, ...]
    outputs: tuple[BundleTensor, ...]
    segments: tuple[BundleSegment, ...] = ()
    golden: Golden | None = None
    notes: tuple[str, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    """Path in the bundle -> SHA-256, of every file but this one."""

    def to_json(self) -> bytes:
        """Byte-stable JSON."""
        return (json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


class BundleFolder:
    """A bundle while it is written: beside its place, and moved there when it is whole.

    Raises:
        OptionError: there is something at the destination that is no bundle, or it cannot be written.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        if destination.exists() and not (destination / MANIFEST).is_file():
            raise OptionError(f"cannot write the bundle {destination}: something else is there; choose another place with -o")
        if not destination.resolve().parent.is_dir():
            raise OptionError(f"cannot write the bundle {destination}: the folder {destination.parent} does not exist")
        self.path = Path()
        """The folder to write into: one for each writer."""

    def __enter__(self) -> BundleFolder:
        final = self.destination.resolve()
        try:
            self.path = Path(mkdtemp(prefix=f".{final.name}.", dir=final.parent))
        except OSError as e:
            raise self._unwritten(e) from e
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            shutil.rmtree(self.path, ignore_errors=True)
        if isinstance(error, OSError):
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> OptionError:
        return OptionError(f"cannot write the bundle {self.destination}: {error.strerror or error}; choose another place with -o")

    def write(self, name: str, data: bytes) -> str:
        """Write a file of the bundle; returns its name."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return name

    def write_arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
        """Write arrays as ``.npz``, in the order of their names; returns the file's name."""
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:  # numpy's own writer has arguments that are names of tensors somewhere
            for key in sorted(arrays):
                array = io.BytesIO()
                np.lib.format.write_array(array, np.asarray(arrays[key]), allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{key}.npy"), array.getvalue())
        return self.write(name, held.getvalue())

    def finish(self, manifest: Manifest) -> Manifest:
        """Add the hashes, write the manifest and put the folder in its place.

        Returns:
            The manifest as written.
        """
        whole = manifest.model_copy(update={"files": hashes(self.path)})
        self.write(MANIFEST, whole.to_json())
        final = self.destination.resolve()
        self.path.chmod(0o777 & ~_umask())
        old = Path(f"{self.path}.old")
        with suppress(FileNotFoundError):
            final.rename(old)
        self.path.rename(final)
        shutil.rmtree(old, ignore_errors=True)
        return whole


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder but the manifest, by its path with slashes."""
    out = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            out[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return out


def read_bundle(folder: str | Path) -> Manifest:
    """The manifest of a bundle that this version can use, with all its files as they were written.

    Raises:
        PlanError: it is no bundle, was made by an incompatible version, or a file is missing or changed.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file() or path.stat().st_size > _MAX_MANIFEST:
        raise PlanError(f"{folder} is not a bundle: it has no {MANIFEST}; make one with 'hetsched export PLAN --to ort'")
    try:
        raw = json.loads(path.read_bytes())
        _check_versions(raw, folder)
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as e:
        raise PlanError(f"{path} is not a valid manifest: {wrong_fields.fault(e, Manifest)}; export the plan again") from e
    except (ValueError, AttributeError) as e:
        raise PlanError(f"{path} is not a valid manifest: {e}; export the plan again") from e
    found = hashes(folder)
    for name, digest in manifest.files.items():
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts or found.get(name) != digest:
            what = "changed since it was written" if name in found else "missing"
            raise PlanError(f"the bundle {folder} is damaged: {name!r} is {what}; export the plan again")
    golden = (manifest.golden.inputs, manifest.golden.outputs) if manifest.golden else ()
    named = (*(s.file for s in manifest.segments if s.file), *golden)
    stranger = next((f for f in named if not any(n == f or n.startswith(f"{f}/") for n in manifest.files)), None)
    if stranger is not None:
        raise PlanError(f"{path} is not a valid manifest: it names {stranger!r}, which is no file of the bundle; export the plan again")
    return manifest


def _check_versions(raw: Mapping[str, Any], folder: Path) -> None:
    """Versions are looked at first, so that a newer manifest is not called a damaged one."""
    again = f"export the plan again, or use hetsched {raw.get('hetsched', 'of that time')}"
    if raw.get("schema_version") != SCHEMA:
        raise PlanError(f"the bundle {folder} has schema version {raw.get('schema_version')!r} and this version reads {SCHEMA}: {again}")
    check_schemas(raw, f"the bundle {folder}", again, PlanError)
