"""``explain`` for a whole plan: where its time goes, and what the vendor's default and single processors lose, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hetsched.accounts import Accounts, RefusedOps
from hetsched.partition.causes import amount
from hetsched.plans import Baseline, Plan

#: Name of a part -> field of the accounts without its unit.
PARTS = {"work": "work", "launches": "launch", "syncs": "sync", "transfers": "transfer"}
#: Types and refusals named in a sentence each.
_MOST = 3
#: A part or a type that makes less of a difference than this share of the plan's figure goes without saying.
_SMALL = 0.002


@dataclass(frozen=True)
class TypeLoss:
    """Ops of one type that take a baseline longer than the plan, all together (or need more, where energy is minimised)."""

    type: str
    where: str
    """The baseline's queues."""
    plan_where: str
    amount: float
    plan_amount: float


@dataclass(frozen=True)
class Spent:
    """What ops of one type cost in one place."""

    ops: tuple[str, ...]
    """The one that costs most first."""
    type: str
    where: str
    amount: float
    """Of all of them, in seconds; joules where energy is minimised."""
    changes: tuple[str, ...] = ()
    """What would bring the first of them elsewhere."""


@dataclass(frozen=True)
class Loss:
    """A baseline against the plan. Seconds; joules where energy is minimised."""

    solver: str
    lost: float
    """Below 0: the baseline is better."""
    parts: dict[str, float]
    """What of it is work, launches, syncs and transfers: they add up."""
    accounts: Accounts
    refused: tuple[RefusedOps, ...]
    types: tuple[TypeLoss, ...]
    """The types that lose, most first."""


@dataclass(frozen=True)
class PlanExplanation:
    """A plan beside what it is better than. ``unit`` is that of the losses: ``s`` or ``J``."""

    plan: Plan
    unit: str
    losses: tuple[Loss, ...]
    most: tuple[Spent, ...] = ()
    """What the plan spends most on."""
    about: tuple[str, ...] = ()
    """Sentences on which plan this is, and which others its file has."""

    def rows(self) -> list[list[str]]:
        """Per placement: name, latency or energy, its four parts, and its segments by queue."""
        known = [(b.solver, b.accounts) for b in self.plan.baselines if b.accounts is not None]
        mine = [] if self.plan.accounts is None else [("this plan", self.plan.accounts)]
        return [
            [name, self._text(sum(_parts(a, self.unit).values())), *map(self._text, _parts(a, self.unit).values()), _by_queue(a)]
            for name, a in (*known, *mine)
        ]

    def brief(self) -> list[str]:
        """What the vendor's default loses, and what it cannot take, in two lines at most; nothing where it is as good."""
        vendor = next((x for x in self.losses if x.solver == "vendor"), None)
        if vendor is None or vendor.lost <= self._small:
            return []
        said = list(self._said(vendor))
        return [said[0], *(text.strip() for text in said[1:2] if vendor.refused)]

    def as_dict(self) -> dict[str, Any]:
        """The losses for machines, by solver."""
        return {
            x.solver: {
                "lost": x.lost, "parts": x.parts, "segments": x.accounts.segments, "types": [asdict(t) for t in x.types],
                "refused": [r.model_dump(mode="json") for r in x.refused],
            }
            for x in self.losses
        }  # fmt: skip

    @property
    def _small(self) -> float:
        """A difference that goes without saying."""
        return _SMALL * sum(_parts(self.plan.accounts, self.unit).values()) if self.plan.accounts else 0.0

    def lines(self) -> list[str]:
        """Sentences: the vendor's default and the best single processor against the plan."""
        out: list[str] = []
        for k, loss in enumerate(self.losses):
            twin = next((x for x in self.losses[:k] if x.accounts == loss.accounts), None)
            out += self._said(loss) if twin is None else [f"{loss.solver}: as {twin.solver}"]
        return out

    def spending(self) -> list[str]:
        """Sentences: what the plan spends most on, and what would bring that elsewhere."""
        whole = sum(_parts(self.plan.accounts, self.unit).values()) if self.plan.accounts else 0.0
        out, said = list[str](), dict[str, str]()
        for x in self.most:
            share = f", {x.amount / whole:.0%} of the plan" if whole > 0 else ""
            out.append(f"{len(x.ops)} {x.type}: {self._text(x.amount)} on {x.where}{share}")
            changes = "; ".join(x.changes) or "no other figure alone would bring it elsewhere"
            out.append(f"  {x.ops[0]}: {f'as {said[changes]}' if changes in said else changes}")
            said.setdefault(changes, x.ops[0])
        return out

    def _said(self, loss: Loss) -> Iterator[str]:
        small = self._small
        if abs(loss.lost) <= small and loss.accounts.count == len(self.plan.segments):
            yield f"{loss.solver}: as good as this plan, in {segments(loss.accounts)}"
        else:
            verb = "loses" if loss.lost >= 0 else "would be better by"
            parts = [f"{k} {'+' if v > 0 else '-'}{self._text(abs(v))}" for k, v in loss.parts.items() if abs(v) > small]
            yield f"{loss.solver} {verb} {self._text(abs(loss.lost))} ({', '.join(parts)}), in {segments(loss.accounts)}"
        for r in loss.refused[:_MOST]:
            saved = self._latency(loss) - r.latency_s
            effect = f": with them there it would be {amount(saved, 'latency')} faster" if saved > small and self.unit == "s" else ""
            yield f"  {r.queue} refuses {r.ops} {r.type} ({r.reason}){effect}"
        for t in loss.types[:_MOST]:
            yield f"  {t.type}: {self._text(t.amount)} on {t.where}, {self._text(t.plan_amount)} in this plan on {t.plan_where}"

    def _latency(self, loss: Loss) -> float:
        return sum(_parts(loss.accounts, "s").values())

    def _text(self, value: float) -> str:
        return amount(value, "energy" if self.unit == "J" else "latency") if value else "0"


def segments(a: Accounts) -> str:
    """``3 segments (1 cpu, 2 npu)``."""
    return f"{a.count} segment{'s' if a.count != 1 else ''} ({_by_queue(a)})"


def _by_queue(a: Accounts) -> str:
    return ", ".join(f"{n} {q}" for q, n in a.segments.items())


def spent(plan: Plan) -> list[Spent]:
    """What the ops of each type cost in each place, the most first."""
    joules = plan.objective == "energy"
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for p in plan.placements:
        found.setdefault((p.type, f"{p.queue} {p.precision}"), []).append((p.energy_j if joules else p.seconds, p.op))
    made = [
        Spent(tuple(op for _, op in sorted(ops, key=lambda x: (-x[0], x[1]))), kind, where, sum(x for x, _ in ops))
        for (kind, where), ops in found.items()
    ]
    return sorted(made, key=lambda s: (-s.amount, s.type, s.where))


def explain_plan(plan: Plan) -> PlanExplanation:
    """What the vendor's default and the best single processor lose against a plan.

    A plan file made before plans kept accounts has none, and nothing is compared.
    """
    unit = "J" if plan.objective == "energy" else "s"
    known = {b.solver: b for b in plan.baselines if b.accounts is not None}
    single = [b for name, b in known.items() if name.startswith("single:")]
    best = sorted(single, key=lambda b: (sum(_parts(b.accounts, unit).values()) if b.accounts else 0.0, b.solver))[:1]
    shown = [*([known["vendor"]] if "vendor" in known else []), *best]
    losses = tuple(_loss(plan, b, plan.accounts, b.accounts, unit) for b in shown if plan.accounts and b.accounts)
    return PlanExplanation(plan, unit, losses)


def _loss(plan: Plan, b: Baseline, mine: Accounts, its: Accounts, unit: str) -> Loss:
    here, there = _parts(mine, unit), _parts(its, unit)
    parts = {k: there[k] - here[k] for k in here}
    return Loss(b.solver, sum(parts.values()), parts, its, b.refused, _types(plan, b, unit, _SMALL * sum(here.values())))


def _types(plan: Plan, b: Baseline, unit: str, small: float) -> tuple[TypeLoss, ...]:
    here: dict[str, float] = {}
    there: dict[str, float] = {}
    here_on: dict[str, dict[str, None]] = {}
    there_on: dict[str, dict[str, None]] = {}
    for p in plan.placements:
        here[p.type] = here.get(p.type, 0.0) + (p.energy_j if unit == "J" else p.seconds)
        here_on.setdefault(p.type, {})[p.queue] = None
    for t in b.types:
        there[t.type] = there.get(t.type, 0.0) + (t.energy_j if unit == "J" else t.seconds)
        there_on.setdefault(t.type, {})[t.queue] = None
    found = [
        TypeLoss(kind, " and ".join(sorted(there_on[kind])), " and ".join(sorted(here_on[kind])), total, here[kind])
        for kind, total in there.items()
        if kind in here and total - here[kind] > small
    ]
    return tuple(sorted(found, key=lambda t: (t.plan_amount - t.amount, t.type)))


def _parts(a: Accounts, unit: str) -> dict[str, float]:
    """The four parts of a placement's seconds or joules."""
    return {name: getattr(a, f"{field}_{unit.lower()}") for name, field in PARTS.items()}
