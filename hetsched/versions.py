"""The version header: what a file asks of the runtime that loads it, in one place for all files of ours.

Plans, prefixes, updates and accepted guesses say the oldest runtime that reads them, how their numbers are quantized, and what their
operators mean; bundles, which a vendor's runtime computes, say the last two. A file that asks for something else is refused in one
sentence, before anything else of it is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hetsched.errors import HetschedError, ModelError, shortened

#: What operators mean: their names, inputs and attributes (``docs/operators.md``).
OPERATOR_SET = "hetsched-ops-1"
#: How stored integers stand for reals (``docs/precisions.md``).
QUANTIZATION_SCHEMA = 1
#: The oldest runtime that reads what this one writes.
MINIMUM_RUNTIME = "0.1.0"
#: How the blocks of GGUF files are laid out (``general.quantization_version``, ggml's GGML_QNT_VERSION).
GGUF_QUANTIZATION = 2
_VERSION = re.compile(r"[0-9]{1,8}(\.[0-9]{1,8}){0,4}")
_SCHEMAS: Mapping[str, int | str] = {"quantization_schema": QUANTIZATION_SCHEMA, "operator_set": OPERATOR_SET}


def version_header() -> dict[str, int | str]:
    """What a file that is written now says.

    Examples:
        >>> sorted(version_header())
        ['minimum_runtime', 'operator_set', 'quantization_schema']
    """
    return {"minimum_runtime": MINIMUM_RUNTIME, **_SCHEMAS}


def check_versions(said: Mapping[str, Any], where: str, again: str, error: type[HetschedError] = ModelError) -> None:
    """Refuse a file that asks for another runtime than this one.

    Args:
        said: what the file says.
        where: the file, which begins the sentence.
        again: what to do, such as "make the plan again".
        error: what is raised.

    Raises:
        HetschedError: ``error``: a newer runtime is needed, or another quantization schema or operator set.
    """
    needed, present = said.get("minimum_runtime"), str(import_module("hetsched").__version__)
    if not _numbers(needed):
        raise error(f"{where} needs the runtime {str(needed)[:40]!r}, which is no version: {again}")
    if _numbers(needed) > _numbers(".".join(present.split(".")[:3])):
        raise error(f"{where} needs hetsched {needed} or newer, this is {present}: upgrade it")
    check_schemas(said, where, again, error)


def check_schemas(said: Mapping[str, Any], where: str, again: str, error: type[HetschedError] = ModelError) -> None:
    """The same without the runtime, for files that another runtime computes.

    Raises:
        HetschedError: ``error``: another quantization schema or operator set is needed.
    """
    for name, ours in _SCHEMAS.items():
        theirs = said.get(name)
        if theirs != ours or isinstance(theirs, bool):
            raise error(f"{where} has {name.replace('_', ' ')} {shortened(repr(theirs), 40)} and this version reads {ours!r}: {again}")


def check_gguf(metadata: Mapping[str, Any], quantized: bool, where: str) -> None:
    """Refuse a GGUF file whose blocks are laid out in another way; files that have none, or do not say, pass.

    Raises:
        ModelError: it says another version.
    """
    version = metadata.get("general.quantization_version", GGUF_QUANTIZATION)
    if quantized and version != GGUF_QUANTIZATION:
        raise ModelError(
            f"{where} has weights in blocks of the version {str(version)[:40]!r} (general.quantization_version) and this version reads "
            f"{GGUF_QUANTIZATION}: convert it again"
        )


def _numbers(version: object) -> tuple[int, ...]:
    """The numbers of a version; none where it is no version."""
    return tuple(map(int, version.split("."))) if isinstance(version, str) and _VERSION.fullmatch(version) else ()
