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
#: Parameters that ``make fit`` wrote; a family names its file as ``fitted``.
FITTED = Path(__file__).parent / "fitted"


#: The peak precision of integer work on floats that are quantized as they arrive, where it has figures of its own.
DYNAMIC = "i8-dynamic"


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
    tiled: dict[str, float]
    """Parameters of :mod:`hetsched_cost_models.hexagon`; empty: the roofline applies."""
    half_width: dict[str, float]
    """Of 80 % intervals in the logarithm, by case (:mod:`hetsched_cost_models.certainty`); empty: the SoC file's interval."""
    operators: frozenset[str]
    """Operator types that the fit saw."""
    depth_half: float = 0.0
    """Depth of a product at which it reaches half of its utilisation."""
    fill_macs: float = 0.0
    """Multiply-accumulates for which matrix work leaves the processor idle while it starts and ends."""
    fixed_bandwidth: float = 0.0
    """Bytes a second of the processor at which ``fixed_s`` holds; elsewhere it goes with memory. 0: it is the same everywhere."""
    weights_ahead: bool = False
    """Weights stream while other operators compute (:mod:`hetsched_cost_models.streaming`)."""
    busy_share: float = 1.0
    """Of its dynamic power, what it draws for as long as it has work (:mod:`hetsched_cost_models.energy`)."""
    op_s: float = 0.0
    """Seconds an operator that runtimes add to the SoC file's."""
    serial_share: float | None = None
    """Share of work that more threads do not speed up: ``n`` of them reach the cores' sum over ``1 + share (n - 1)``; None: the sum."""
    depthwise_window: float = 0.0
    """Multiply-accumulates a written element for which shares of depthwise convolutions hold, whatever their window; 0: by their own."""
    half: frozenset[str] = frozenset()
    """Runtimes that compute floats in float16 where all cores have a rate for it."""

    def share(self, cls: str, peak: str, overrides: dict[str, float]) -> float:
        """Utilisation of one class at one peak precision (``f32, f16, i8``, :data:`DYNAMIC`); the SoC file's figure wins."""
        for name in (cls, CLASS_LIKE.get(cls, cls)):
            for source in (overrides, self.utilisation):
                for key in _keys(name, peak):
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


def runtimes_of(soc: SoC, *, decoder: bool = True) -> tuple[str, ...]:
    """Names that ``--runtime`` takes on a SoC: ``default``, those that some accelerator of it has, and those fitted for its CPU.

    Engines that have rates of language models only are left out where the model is no ``decoder``.
    """
    known = _data()["support"]
    found = {r for p in soc.processors for r in known.get(p.support or "", {})}
    found |= {r for p in soc.processors if p.kind == "cpu" for r in family_of(p).pace}
    if decoder:
        found |= {r for p in soc.processors for r in _engines(p)}
    return ("default", *(r for r in _data()["runtimes"] if r in found and r != "default"))


def engine_of(processor: Processor, runtime: str) -> str:
    """Whose rates a language model has on a processor through a runtime: the engine of that name, else the usual one there."""
    known = _engines(processor)
    return known.get(runtime, known["default"])


def head_bits(engine: str) -> float | None:
    """Bits of the weights that make the scores in an engine's 4-bit models; None: those of the layers."""
    found = _data()["head_bits"].get(engine)
    return None if found is None else _value(found)


def _engines(processor: Processor) -> dict[str, str]:
    known: dict[str, dict[str, str]] = _data()["engines"]
    return known.get(processor.family or "", known[processor.kind])


def system_cache_defaults() -> tuple[float, float]:
    """What a SoC file may leave out of a system cache: its rate over the DRAM's peak, and joules a byte."""
    raw = _data()["system_cache"]
    return _value(raw["rate_over_dram"]), _value(raw["j_per_byte"])


def dma_defaults() -> tuple[float, float]:
    """What a SoC file may leave out of a DMA engine: what it takes to start a copy, and joules a byte that it reads or writes."""
    raw = _data()["dma"]
    return _value(raw["launch_s"]), _value(raw["j_per_byte"])


def parameter_version() -> str:
    """``<version>-<first 8 hex digits of the hash of the parameters and the fitted files that they name>``, as plans store it."""
    return _version()


@lru_cache(maxsize=1)
def _version() -> str:
    named = sorted({f["fitted"] for f in _data()["families"].values() if "fitted" in f} | {_data()["language"]})
    content = b"".join(p.read_bytes() for p in (_FILE, *(FITTED / name for name in named)))
    return f"{_data()['version']}-{hashlib.sha256(content).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return read_parameters(_FILE)


def read_parameters(path: Path) -> dict[str, Any]:
    """A parameter file of this package."""
    import yaml

    loaded: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
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
        tiled={k: _value(v) for k, v in raw.get("tiled", {}).items()},
        half_width={k: _value(v) for k, v in raw.get("half_width", {}).items()},
        operators=frozenset(raw.get("operators", ())),
        depth_half=_value(raw["depth_half"]) if "depth_half" in raw else 0.0,
        fill_macs=_value(raw["fill_macs"]) if "fill_macs" in raw else 0.0,
        fixed_bandwidth=_value(raw["fixed_bandwidth"]) if "fixed_bandwidth" in raw else 0.0,
        weights_ahead="weights_ahead" in raw and _value(raw["weights_ahead"]) > 0.0,
        busy_share=_value(raw["busy_share"]),
        op_s=_value(raw["op_s"]) if "op_s" in raw else 0.0,
        serial_share=_value(raw["serial_share"]) if "serial_share" in raw else None,
        depthwise_window=_value(raw["depthwise_window"]) if "depthwise_window" in raw else 0.0,
        half=frozenset(raw.get("half", ())),
    )  # fmt: skip


def _resolved(name: str) -> dict[str, Any]:
    """A family with its ``like`` base and its fitted file filled in: tables merge entry by entry, except empty ones, which clear."""
    own = dict(_data()["families"][name])
    if "fitted" in own:
        own |= read_parameters(FITTED / own.pop("fitted"))["parameters"]
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
    return _by_class(known, "matrix", peak, _factor(known, "matrix", peak))


def result_factors(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Cost of each element that matrix work writes, in bytes of vector work, in the order of :data:`CLASSES` (``result/conv1x1/i8``)."""
    return _by_class(_known_factors(family, overrides), "result", peak, 0.0)


def _by_class(known: dict[str, float], what: str, peak: str, default: float) -> list[float]:
    keys = {c: [f"{what}/{key}" for name in (c, CLASS_LIKE.get(c, c)) for key in _keys(name, peak)[:-1]] for c in CLASSES}
    return [next((known[k] for k in keys[c] if k in known), default) for c in CLASSES]


def _known_factors(family: Family, overrides: dict[str, float]) -> dict[str, float]:
    return {**family.vector, **{k.removeprefix("vector/"): 1.0 / v for k, v in overrides.items() if k.startswith("vector/")}}


def _factor(known: dict[str, float], kind: str, peak: str) -> float:
    for name in (kind, KIND_LIKE.get(kind, kind)):
        for key in _keys(name, peak):
            if key in known:
                return known[key]
    return 0.0 if kind == "view" else 1.0


def _keys(name: str, peak: str) -> tuple[str, ...]:
    """How figures of a class or kind are named, the most special first."""
    return tuple(dict.fromkeys((f"{name}/{peak}", f"{name}/{'i8' if peak == DYNAMIC else peak}", name)))


def class_shares(family: Family, peak: str, overrides: dict[str, float]) -> list[float]:
    """Utilisations in the order of :data:`CLASSES` (vector work has none: 1)."""
    return [1.0 if c == "vector" else family.share(c, peak, overrides) for c in CLASSES]
