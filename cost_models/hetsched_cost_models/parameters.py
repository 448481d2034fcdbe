"""The parameters of the cost model, read once from ``parameters.yaml`` beside this file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hetsched.socs import Processor
from hetsched_cost_models.operators import CLASSES, VECTOR_KINDS

_FILE = Path(__file__).parent / "parameters.yaml"


@dataclass(frozen=True, eq=False)
class Family:
    """Parameters of one processor family. Shares and factors are dimensionless; ``fixed_s`` are seconds."""

    utilisation: dict[str, float]
    vector: dict[str, float]
    vector_bytes_per_op: float
    weight_share: float
    align: tuple[int, int, int]
    fixed_s: dict[str, dict[str, float]]
    pace: dict[str, float]

    def share(self, cls: str, peak: str, overrides: dict[str, float]) -> float:
        """Utilisation of one class at one peak precision (``f32, f16, i8``); the SoC file's figure wins."""
        for source in (overrides, self.utilisation):
            for key in (f"{cls}/{peak}", cls):
                if key in source:
                    return source[key]
        return 1.0


def family_of(processor: Processor) -> Family:
    """Parameters of a processor: its named family's, else its kind's default."""
    data = _data()
    name = processor.family if processor.family in data["families"] else data["kinds"][processor.kind]
    return _family(name)


def support_table_name(support: str | None, runtime: str) -> str | None:
    """Name of the operator table of an accelerator through a runtime; None: no table applies, everything runs."""
    tables = _data()["support"].get(support or "")
    if tables is None:
        return None
    found: str = tables.get(runtime, tables["default"])
    return found


def known_runtimes() -> tuple[str, ...]:
    """Names that ``--runtime`` takes."""
    return tuple(_data()["runtimes"])


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
    """Cost factors in the order of :data:`VECTOR_KINDS`; views are free unless named, unnamed kinds count as elementwise.

    A kind may have another factor at one peak precision (``norm/i8``). A SoC file's utilisation ``vector/<kind>`` is the
    kind's rate over the elementwise rate: its factor is the inverse.
    """
    factors = {k.removeprefix("vector/"): 1.0 / v for k, v in overrides.items() if k.startswith("vector/")}
    known = {**family.vector, **factors}
    return [known.get(f"{kind}/{peak}", known.get(kind, 0.0 if kind == "view" else 1.0)) for kind in VECTOR_KINDS]


def class_shares(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Utilisations in the order of :data:`CLASSES` (vector work has none: 1)."""
    return [1.0 if c == "vector" else family.share(c, peak, overrides) for c in CLASSES]
