"""Where the figures come from: files, versions, and the figures of the SoC that are only estimates."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from hetsched.fusions import Fusions
from hetsched.reports.items import PlanItem
from hetsched.soc_quantities import Figure
from hetsched.socs import OperatingPoint, SoC


@dataclass(frozen=True)
class Estimate:
    """A figure of the SoC without a source."""

    where: str
    value: str
    basis: str


def facts(item: PlanItem) -> list[tuple[str, str]]:
    """``(what, value)`` pairs that identify the inputs of a deployment."""
    d = item.deployment
    corrected = [("anchored to", a.describe() + (f"; {a.source}" if a.source else "")) for a in d.anchors]
    corrected += [] if d.measured is None else [("measured", d.measured.describe())]
    return [
        *corrected,
        ("model", d.model.path),
        ("model SHA-256", d.model.sha256 or "unknown"),
        ("dims", ", ".join(f"{k} = {v}" for k, v in sorted(d.model.dims.items())) or "as in the file"),
        ("SoC", d.soc.id),
        ("SoC SHA-256", d.soc.sha256 or "unknown"),
        ("overrides", ", ".join(f"{k} = {v}" for k, v in sorted(d.soc.overrides.items())) or "none"),
        ("runtime assumed", d.runtime),
        ("precision asked for", d.precision),
        ("parameter files", d.parameters or "unversioned"),
        ("hetsched", d.header.hetsched),
        ("operator set", d.header.operator_set),
    ]


def estimates(soc: SoC | None) -> list[Estimate]:
    """Every figure of the SoC that is marked ``estimated``, voltages of a cluster as one line each."""
    out: list[Estimate] = []
    if soc is not None:
        _walk(soc, "", out)
    return out


def _walk(value: object, where: str, out: list[Estimate]) -> None:
    if isinstance(value, Figure):
        if value.estimated is not None:
            out.append(Estimate(where, f"{value.value:g}", value.estimated))
    elif isinstance(value, Fusions):
        if value.estimated is not None:
            out.append(Estimate(where, f"{len(value.value)} composites", value.estimated))
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            _walk(getattr(value, name), f"{where}.{name}" if where else name, out)
    elif isinstance(value, dict):
        for key in sorted(value):
            _walk(value[key], f"{where}.{key}", out)
    elif isinstance(value, tuple) and value and isinstance(value[0], OperatingPoint):
        guessed = [p for p in value if isinstance(p, OperatingPoint) and p.voltage_estimated]
        if guessed:
            volts = f"{guessed[0].v:g}–{guessed[-1].v:g} V"
            out.append(Estimate(f"{where} voltages", volts, f"estimated for {len(guessed)} of {len(value)} operating points"))
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            label = getattr(part, "name", i)
            _walk(part, f"{where}.{label}", out)
