"""Language models as workloads: a prompt and its answer are two phases, planned once each and priced as the context grows.

The *prefill* computes the prompt's tokens at once (``tokens = prompt``, ``past = 0``, scores of the last position only) and
chooses the first token. A *decode* step computes one token after ``past`` cached ones. Its plan is made for the last step of
the answer, where the caches are largest, so that its buffers and a memory limit hold for every step; its placement is then
priced again at a few shorter contexts, and between those the costs are interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.acceptance import accepted_share
from hetsched.app.between_phases import Between, between
from hetsched.app.experts import read_profile
from hetsched.app.inputs import early_layers, load, targeted
from hetsched.app.levels import price_switch
from hetsched.app.planned import Planned, priced
from hetsched.app.splitting import split
from hetsched.errors import OptionError, PlanError
from hetsched.graph import Graph, Role
from hetsched.partition.switching import Placed
from hetsched.passes import PassReport
from hetsched.plan_language import Language, LanguagePrediction, Speculation
from hetsched.plans import Deployment
from hetsched.segments import schedule
from hetsched.socs import SoC
from hetsched.states import cache_bytes, kv_bytes_per_token

#: Contexts at which a decode step is priced.
CONTEXTS = 5
#: Dims that a phase binds.
PHASE_DIMS = ("tokens", "past", "logits")
Profile = str | Path | Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False)
class PlannedLanguage(Planned):
    """A prompt and its answer. As a :class:`Planned` it is the decode step; ``prefill`` is the other phase.

    ``guessing``: the phases ``verify`` and ``draft`` of an answer whose tokens are guessed.
    """

    prefill: Planned | None = None
    guessing: Mapping[str, Planned] = field(default_factory=dict)

    @property
    def asked(self) -> Language:
        """Prompt, answer and how the graphs are rewritten."""
        return self.deployment.language or Language()

    @property
    def decode(self) -> Planned:
        """The decode step alone."""
        return Planned(self.deployment, self.graph, self.soc, self.table, self.wall_s, self.path, passes=self.passes, entry=self.entry)

    @property
    def phases(self) -> dict[str, Planned]:
        """Each phase as a plan of its own."""
        first = {} if self.prefill is None else {"prefill": replace(self.prefill, path=self.path)}
        return {**first, "decode": self.decode, **{name: replace(p, path=self.path) for name, p in self.guessing.items()}}

    @property
    def prediction(self) -> LanguagePrediction:
        """The figures of prompt and answer.

        Raises:
            PlanError: a plan file without them.
        """
        if self.asked.prediction is None:
            raise PlanError(f"the plan of {self.graph.name!r} has no figures of its prompt: make it again with 'hetsched plan'")
        return self.asked.prediction

    @property
    def between(self) -> Between:
        """What lies between the phases."""
        level = self.deployment.entries[self.entry].level
        prefill, decode = self.phases["prefill"], self.phases["decode"]
        first, second = (Placed(p.graph, p.table, p.placement[1]) for p in (prefill, decode))
        return between(prefill, decode, price_switch(("prefill", level), ("decode", level), first, second))

    @property
    def kv(self) -> str:
        """Precision of the caches as asked for, or the types of the states as the file has them."""
        stored = (self.graph.tensors[n].dtype.value for n in self.graph.outputs if self.graph.tensors[n].role is Role.STATE)
        return self.asked.kv or "/".join(dict.fromkeys(stored))

    def summary(self) -> dict[str, Any]:
        """The keys of ``plan --json``: those of the decode step, and of prompt and answer together; ``phases`` has both."""
        asked, p = self.asked, self.prediction
        return super().summary() | {
            "peak_memory_mb": p.peak_memory_bytes / 1e6, "prompt": asked.prompt, "generate": asked.generate, "kv": self.kv,
            "ttft_ms": p.ttft_s * 1e3, "ttft_ms_interval": [v * 1e3 for v in p.ttft_interval_s],
            "prefill_tok_s": p.prefill_rate, "prefill_tok_s_interval": list(p.prefill_rate_interval),
            "decode_tok_s": p.decode_rate, "decode_tok_s_interval": list(p.decode_rate_interval),
            "energy_per_token_j": p.energy_per_token_j, "kv_cache_mb": p.kv_cache_bytes / 1e6,
            "kv_bytes_per_token": p.kv_bytes_per_token, "phases": {name: phase.summary() for name, phase in self.phases.items()},
            "between_phases": self.between.as_dict(), "speculation": _speculation(asked.speculation),
        }  # fmt: skip


def _speculation(asked: Speculation | None) -> dict[str, Any] | None:
    """The keys of ``plan --json`` on guessed tokens; None: none are guessed."""
    if asked is None or asked.prediction is None:
        return None
    p = asked.prediction
    return {
        "length": asked.length, "drafter": asked.guesser.partition(":")[0], "draft_layers": asked.layers or None,
        "draft": asked.draft or None, "acceptance": accepted_share(asked.shares), "measured": asked.assumed is None,
        "tokens_per_step": p.tokens_per_step, "step_ms": p.step_s * 1e3, "verify_ms": p.verify_s * 1e3, "draft_ms": p.draft_s * 1e3,
        "decode_tok_s": p.decode_rate, "decode_tok_s_interval": list(p.decode_rate_interval), "gain": p.gain,
        "energy_per_token_j": p.energy_per_token_j, "decode_tok_s_by_length": list(asked.rates) or None,
    }  # fmt: skip


def asked_of(prompt: int | None, generate: int | None, kv: str | None, experts: Profile | None, sampling: str | None) -> Language | None:
    """What a language model is asked for, checked and in the form that a plan file keeps; None if nothing is asked.

    Raises:
        OptionError: an option is out of range or malformed, or one of ``prompt`` and ``generate`` is missing.
    """
    from hetsched.passes.kv_precision import KvPrecision
    from hetsched.passes.sampling import AppendSampling

    if all(v is None for v in (prompt, generate, kv, experts, sampling)):
        return None
    for name, value in (("--prompt", prompt), ("--generate", generate)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 24):
            raise OptionError(f"{name} {value} is out of range: use 1 to {1 << 24} tokens")
    if (prompt is None) != (generate is None):
        raise OptionError("--prompt and --generate belong together: give the tokens of the prompt and of the answer")
    if sampling is not None and prompt is None:
        raise OptionError("--sampling chooses the tokens of an answer: give --prompt and --generate too")
    method = "" if prompt is None else AppendSampling(sampling or "greedy").method
    return Language(
        prompt=prompt or 0, generate=generate or 0, kv="" if kv is None else KvPrecision.parse(kv).text,
        experts=() if experts is None else read_profile(experts), sampling=method,
    )  # fmt: skip


def rewritten(graph: Graph, asked: Language | None) -> Graph:
    """The graph with the caches' precision, the experts' profile and the choice of the next token that ``asked`` has.

    Raises:
        OptionError: the graph has no caches, no experts or no scores, or a profile does not fit.
    """
    from hetsched.passes.expert_activation import ExpertActivation
    from hetsched.passes.kv_precision import KvPrecision
    from hetsched.passes.sampling import AppendSampling

    if asked is None:
        return graph
    if asked.kv:
        graph = KvPrecision.parse(asked.kv)(graph)
    if asked.experts:
        graph = ExpertActivation(asked.experts)(graph)
    return AppendSampling(asked.sampling)(graph) if asked.sampling else graph


def joined(deployment: Deployment, phases: Sequence[Planned], level: int = 0) -> PlannedLanguage:
    """The phases as one, in the order of the entries of each level of ``deployment``: the prefill, the decode, others."""
    at = next(k for k, e in enumerate(deployment.entries) if e.level == level)
    first, decode, *others = (replace(p, deployment=deployment, entry=at + k) for k, p in enumerate(phases))
    return PlannedLanguage(
        deployment, decode.graph, decode.soc, decode.table, sum(p.wall_s for p in phases), decode.path, passes=decode.passes,
        entry=decode.entry, prefill=first, guessing={deployment.entries[p.entry].phase: p for p in others},
    )  # fmt: skip


def phase_graph(
    model: Path, chip: SoC, asked: Language, dims: Mapping[str, int], tokens: int, past: int, report: list[PassReport] | None = None,
    phase: str = "",
) -> Graph:  # fmt: skip
    """The graph of one phase, as it is planned on ``chip``; what the passes changed is appended to ``report``."""
    from hetsched import frontends

    bound = {**dims, **frontends.phase_dims(model, tokens, past)}
    if phase == "verify" and "logits" in bound:
        bound["logits"] = tokens
    return rewritten(targeted(loaded(model, asked, bound, phase, report), chip, report), asked_in(asked, phase))


def loaded(model: Path, asked: Language | None, dims: Mapping[str, int], phase: str, report: list[PassReport] | None = None) -> Graph:
    """The model with the dims of a phase; of a ``draft`` by the model itself, its first layers.

    Raises:
        OptionError: it has not so many.
    """
    guessed = None if asked is None or phase != "draft" else asked.speculation
    return early_layers(model, guessed.layers, dims, report) if guessed is not None and guessed.layers else load(model, dims, report)


def asked_in(asked: Language, phase: str) -> Language:
    """What a phase's graph is asked for: a smaller model that drafts has caches and experts of its own."""
    alone = phase == "draft" and asked.speculation is not None and not asked.speculation.layers
    return asked.model_copy(update={"kv": "", "experts": ()}) if alone else asked


def contexts_of(asked: Language) -> list[int]:
    """Lengths of the cache at which a decode step is priced: the first, the last and some between, ascending."""
    first, last = asked.prompt, asked.prompt + asked.generate - 1
    return sorted({round(v) for v in np.linspace(first, last, CONTEXTS).tolist()})


def step(planned: PlannedLanguage, past: int) -> Planned:
    """The decode step after ``past`` tokens: the plan's placement on the cost table of that context."""
    last = planned.asked.prompt + planned.asked.generate - 1
    source = planned.graph.source
    if past == last or source is None:
        return planned.decode
    graph = phase_graph(source, planned.soc, planned.asked, planned.deployment.model.dims, 1, past)
    graph = split(graph, planned.deployment.entries[planned.entry].splits)
    table = priced(graph, planned.soc, planned.deployment, planned.entry)
    return replace(planned.decode, graph=graph, table=table)


def predicted(planned: PlannedLanguage) -> LanguagePrediction:
    """The figures of prompt and answer, from the two plans."""
    asked, phases = planned.asked, planned.phases
    contexts = contexts_of(asked)
    timed = []
    for past in contexts:
        at = step(planned, past)
        timed.append(schedule(at.table, *at.placement))
    steps = np.arange(asked.prompt, asked.prompt + asked.generate)
    step_s, step_j = (float(np.interp(steps, contexts, v).mean()) for v in zip(*((t.latency_s, t.energy_j) for t in timed), strict=True))
    low, high = planned.table.interval
    first = phases["prefill"].plan.prediction
    batch = planned.deployment.model.dims.get("batch", 1)
    ttft, (soon, late) = first.latency_s, first.latency_interval_s
    prompt, decode = batch * asked.prompt, batch / step_s
    return LanguagePrediction(
        ttft_s=ttft, ttft_interval_s=(soon, late), prefill_rate=prompt / ttft, prefill_rate_interval=(prompt / late, prompt / soon),
        decode_rate=decode, decode_rate_interval=(decode / high, decode / low),
        energy_per_token_j=step_j / batch, kv_bytes_per_token=kv_bytes_per_token(planned.graph),
        kv_cache_bytes=cache_bytes(planned.graph), peak_memory_bytes=_peak_bytes(list(phases.values())),
    )  # fmt: skip


def _peak_bytes(phases: Sequence[Planned]) -> int:
    """Weights as the phases hold them, each once a processor and width, the larger arena, and another model's caches."""
    from hetsched.partition.memory import held_weights

    held: dict[tuple[str, str, str, float], int] = {}
    for phase in phases:
        found = held_weights(phase.graph, phase.table, phase.placement[1])
        held |= {(phase.graph.sha256, *key): nbytes for key, nbytes in found.items()}
    largest = max(phases, key=lambda p: p.plan.arena_bytes + p.plan.prediction.workspace_bytes)
    beside = {p.graph.sha256: p.plan.prediction.pool_bytes for p in phases if p.graph.sha256 != largest.graph.sha256}
    return sum(held.values()) + largest.plan.arena_bytes + largest.plan.prediction.workspace_bytes + sum(beside.values())
