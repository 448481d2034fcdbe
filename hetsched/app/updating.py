"""Making updates of weights: what differs between two versions of a model, in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.files import check_destination, write_parts_atomically
from hetsched.frontends import format_of
from hetsched.frontends.gguf_reader import GgufArray, header_of
from hetsched.frontends.hf_files import bytes_beside, fields_beside
from hetsched.graph import Tensor
from hetsched.language.gguf_vocabulary import whole_array
from hetsched.language.update_file import BYTES, ENTRY, ROWS, row_count
from hetsched.language.weight_files import content_hash, digests_of, stored_bytes, weights_of
from hetsched.versions import version_header

#: Files of a folder that say what the weights are used for, beside its configuration.
_BESIDE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "special_tokens_map.json")
_NAMES = (
    "name",
    "size_label",
    "version",
    "author",
    "description",
    "url",
    "license",
    "quantized_by",
    "finetune",
    "basename",
    "organization",
)
#: Fields that name a model and change nothing of it.
_FREE = frozenset({"_name_or_path", "transformers_version", *(f"general.{n}" for n in _NAMES)})
_MOST_BESIDE = 1 << 26
#: The header is padded to multiples of this, so that every update begins with the same byte.
_HEADER = 256


@dataclass(frozen=True)
class Written:
    """An update that was written.

    Attributes:
        path: the file.
        nbytes: its size.
        whole_bytes: size of all weights of the new version.
        changed: how many weights changed.
        weights: how many there are.
        base: content hash of the old version's weights.
        result: that of the new one's.
    """

    path: Path
    nbytes: int
    whole_bytes: int
    changed: int
    weights: int
    base: str
    result: str

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``delta --json``."""
        return {
            "update_path": str(self.path), "bytes": self.nbytes, "weight_bytes": self.whole_bytes, "changed_weights": self.changed,
            "weights": self.weights, "base_sha256": self.base, "result_sha256": self.result,
        }  # fmt: skip


def delta(old: str | Path, new: str | Path, output: str | Path = "update.hsdelta") -> Written:
    """Write what turns the weights of ``old`` into those of ``new``; ``assistant(old, update=output)`` applies it.

    Args:
        old: the model that is there: a GGUF file, or a Hugging Face folder.
        new: the next version, in the same format and with weights of the same names, types and shapes.
        output: the file to write.

    Raises:
        OptionError: they differ in more than the values of weights, or not at all.
        ModelError: one of them is damaged or has no weights.

    Examples:
        >>> delta("assistant-1.gguf", "assistant-2.gguf", "assistant-2.hsdelta").changed  # doctest: +SKIP
        12
    """
    old, new, output = Path(old), Path(new), Path(output)
    check_destination(output, (old, new))
    before, after = weights_of(old), weights_of(new)
    _check_alike(old, new, before, after)
    hashes = digests_of(before), digests_of(after)
    names = [name for name in sorted(after) if hashes[0][name] != hashes[1][name]]
    if not names:
        raise OptionError(f"{old} and {new} have the same weights: there is nothing to send")
    base, result = content_hash(before, hashes[0]), content_hash(after, hashes[1])
    about = {name: {"type": after[name].stored_as, "shape": list(after[name].shape)} for name in names}
    said = json.dumps(version_header() | {"base": base, "result": result, "weights": about}, sort_keys=True)
    rows = {name: _changed_rows(before[name], after[name]) for name in names}
    write_parts_atomically(output, _parts({"__metadata__": {ENTRY: said}}, after, rows))
    whole = sum(t.nbytes for t in after.values())
    return Written(output, output.stat().st_size, whole, len(names), len(after), base, result)


def _check_alike(old: Path, new: Path, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Refuse what an update cannot say: it holds values of weights.

    Raises:
        OptionError: something else differs.
    """
    whole = "send the whole model"
    one, other = rest_of(old), rest_of(new)
    differs = next((k for k in sorted({*one, *other}) if one.get(k) != other.get(k)), None)
    if differs is not None:
        raise OptionError(f"{old} and {new} differ in {differs!r}, and an update holds values of weights only: {whole}")
    for name in sorted({*before, *after}):
        kinds = [f"{t.stored_as} {list(t.shape)}" if (t := ts.get(name)) else "absent" for ts in (before, after)]
        if kinds[0] != kinds[1]:
            raise OptionError(f"the weight {name!r} is {kinds[0]} in {old} and {kinds[1]} in {new}, and an update changes values: {whole}")


def rest_of(path: Path) -> dict[str, Any]:
    """What a model is beside its weights: its format, each field of its description and each file beside it."""
    kind = format_of(path)
    if kind == "gguf":
        header = header_of(path)
        fields: dict[str, Any] = {k: whole_array(header, k) if isinstance(v, GgufArray) else v for k, v in header.metadata.items()}
    else:
        folder = path if path.is_dir() else path.parent
        fields = fields_beside(folder, "config.json")
        fields |= {name: raw for name in _BESIDE if (raw := bytes_beside(folder, name, _MOST_BESIDE)) is not None}
    return {"format": kind} | {k: v for k, v in fields.items() if k not in _FREE}


def _changed_rows(before: Tensor, after: Tensor) -> npt.NDArray[np.int64] | None:
    """Rows that differ; None where it is no longer to write all of them."""
    rows = row_count(after)
    a, b = (stored_bytes(t).reshape(rows, -1) for t in (before, after))
    found = np.flatnonzero((a != b).any(1)).astype(np.int64)
    return found if found.size * (a.shape[1] + found.itemsize) < a.size else None


def _parts(header: dict[str, Any], after: Mapping[str, Tensor], rows: Mapping[str, npt.NDArray[np.int64] | None]) -> Iterator[bytes]:
    """The bytes of the file, weight by weight."""
    at = 0
    for name, which in rows.items():
        all_rows = row_count(after[name])
        width, count = after[name].nbytes // all_rows, all_rows if which is None else which.size
        for key, kind, shape, size in ((ROWS + name, "I64", [count], 8 * count), (BYTES + name, "U8", [count, width], count * width)):
            if kind == "U8" or which is not None:
                header[key] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
                at += size
    described = json.dumps(header).encode()
    described = described.ljust(-(-len(described) // _HEADER) * _HEADER)
    yield len(described).to_bytes(8, "little") + described
    for name, which in rows.items():
        whole = stored_bytes(after[name]).reshape(row_count(after[name]), -1)
        if which is not None:
            yield which.astype("<i8").tobytes()
        yield (whole if which is None else whole[which]).tobytes()
