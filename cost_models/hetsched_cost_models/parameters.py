"""The parameters of the cost model, read once from ``parameters.yaml`` beside this file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hetsched.socs import Processor, SoC
from hetsched_cost_models.operators import CLASS_LIKE, CLASSES, KIND_LIKE, VECTOR_KINDS

_FILE = Path(__file__).parent / "parameters.yaml"


@dataclass(frozen=True, eq=False)
class Family:
    """Parameters of one processor family. Shares and factors are dimensionless; ``fixed_s`` are seconds.

    Of a model's weights ``weight_share`` come from DRAM each inference; the rest, at most ``resident_bytes``, do not.
    """

    utilisation: dict[str, float]
    vector: dict[str, float]
    vector_bytes_per_op: float
    weight_share: float
    resident_bytes: float
    align: tuple[int, int, int]
    fixed_s: dict[str, dict[str, float]]
    pace: dict[str, float]

    def share(self, cls: str, peak: str, overrides: dict[str, float]) -> float:
        """Utilisation of one class at one peak precision (``f32, f16, i8``); the SoC file's figure wins."""
        for name in (cls, CLASS_LIKE.get(cls, cls)):
            for source in (overrides, self.utilisation):
                for key in (f"{name}/{peak}", name):
                    if key in source:
                        return source[key]
        return 1.0


def family_of(processor: Processor) -> Family:
    """Parameters of a processor: its named family's, else its kind's default."""
    data = _data()
    name = processor.family if processor.family in data["families"] else data["kinds"][processor.kind]
    return _family(name)


def support_table_name(support: str | None, runtime: str) -> str | None:
    """Name of the operator table of an accelerator through a runtime; None: no table applies, everything runs.

    An accelerator that the runtime does not reach keeps its default table (:func:`runtimes_of` says what a SoC knows).
    """
    tables = _data()["support"].get(support or "")
    if tables is None:
        return None
    found: str = tables.get(runtime, tables["default"])
    return found


def runtimes_of(soc: SoC) -> tuple[str, ...]:
    """Names that ``--runtime`` takes on a SoC: ``default``, and those that some accelerator of it has."""
    known = _data()["support"]
    found = {r for p in soc.processors for r in known.get(p.support or "", {})}
    return ("default", *(r for r in _data()["runtimes"] if r in found and r != "default"))


def parameter_version() -> str:
    """``<version>-<first 8 hex digits of the file's hash>``, as plans store it."""
    return f"{_data()['version']}-{hashlib.sha256(_FILE.read_bytes()).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.load(_FILE.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return loaded


@lru_cache(maxsize=32)
def _family(name: str) -> Family:
    raw = _resolved(name)
    align = raw.get("align", {})
    return Family(
        utilisation={k: _value(v) for k, v in raw["utilisation"].items()},
        vector={k: _value(v) for k, v in raw["vector"].items()},
        vector_bytes_per_op=_value(raw["vector_bytes_per_op"]),
        weight_share=_value(raw["weight_share"]),
        resident_bytes=_value(raw["resident_bytes"]) if "resident_bytes" in raw else float("inf"),
        align=(int(_value(align["m"])) if "m" in align else 1, int(_value(align["n"])) if "n" in align else 1,
               int(_value(align["k"])) if "k" in align else 1),
        fixed_s={r: {p: _value(v) for p, v in row.items()} for r, row in raw.get("fixed_s", {}).items()},
        pace={r: _value(v) for r, v in raw.get("pace", {}).items()},
    )  # fmt: skip


def _resolved(name: str) -> dict[str, Any]:
    """A family with its ``like`` base filled in: tables merge entry by entry, except empty ones, which clear."""
    own = dict(_data()["families"][name])
    base_name = own.pop("like", None)
    if base_name is None:
        return own
    base = _resolved(base_name)
    for key, value in own.items():
        merge = isinstance(value, dict) and "value" not in value and value and isinstance(base.get(key), dict)
        base[key] = {**base[key], **value} if merge else value
    return base


def _value(figure: dict[str, Any]) -> float:
    return float(figure["value"])


def vector_factors(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Cost factors in the order of :data:`VECTOR_KINDS`; views are free unless named, unnamed kinds count as :data:`KIND_LIKE`.

    A kind may have another factor at one peak precision (``norm/i8``). A SoC file's utilisation ``vector/<kind>`` is the
    kind's rate over the elementwise rate: its factor is the inverse.
    """
    known = _known_factors(family, overrides)
    return [_factor(known, kind, peak) for kind in VECTOR_KINDS]


def matrix_factors(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Cost factors of the bytes that matrix work reads and writes, in the order of :data:`CLASSES` (``matrix/conv1x1/f32``)."""
    known = _known_factors(family, overrides)
    default = _factor(known, "matrix", peak)
    return [known.get(f"matrix/{c}/{peak}", known.get(f"matrix/{CLASS_LIKE.get(c, c)}/{peak}", default)) for c in CLASSES]


def _known_factors(family: Family, overrides: dict[str, float]) -> dict[str, float]:
    return {**family.vector, **{k.removeprefix("vector/"): 1.0 / v for k, v in overrides.items() if k.startswith("vector/")}}


def _factor(known: dict[str, float], kind: str, peak: str) -> float:
    for name in (kind, KIND_LIKE.get(kind, kind)):
        for key in (f"{name}/{peak}", name):
            if key in known:
                return known[key]
    return 0.0 if kind == "view" else 1.0


def class_shares(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Utilisations in the order of :data:`CLASSES` (vector work has none: 1)."""
    return [1.0 if c == "vector" else family.share(c, peak, overrides) for c in CLASSES]
