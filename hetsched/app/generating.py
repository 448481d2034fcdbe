"""Generating text: a model file, or a plan of a prompt and its answer for this machine, opened and asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hetsched.app.drafting import acceptance_of, as_planned, check_drafter, drafter_of, rate_of
from hetsched.app.powering import follow, work_at
from hetsched.errors import OptionError, PlanError
from hetsched.language.conversation import Conversation
from hetsched.language.generation import Answer, Token, generate
from hetsched.language.power import LEVELS, PowerLevel, read_power_policy
from hetsched.language.precision import MEANT, PRECISIONS, WEIGHT_BITS
from hetsched.language.residency import Shrink
from hetsched.language.sampling import Sampling
from hetsched.language.session import CONTEXT, LanguageModel
from hetsched.language.speculation import Drafter, DraftModel
from hetsched.language.vocabularies import vocabulary_of
from hetsched.language.vocabulary import Vocabulary
from hetsched.runtime.affinity import allowed, cores_of
from hetsched.runtime.own_memory import peak_memory_bytes
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.acceptance import Acceptance
    from hetsched.language.power_watch import PowerWatch
    from hetsched.plan_language import Speculation


@dataclass(eq=False)
class Assistant:
    """A model that answers. Use it as a context manager, or call :meth:`close`.

    Attributes:
        model: its weights, programs and cache.
        vocabulary: its vocabulary.
        start_s: how long it took to open.
        predicted: what the plan says of the prompt and the answer; empty without a plan.
        sampling: how tokens are chosen.
        drafter: speculates tokens.
        levels: how much power the levels take.
        watch: chooses a level by the state of the machine; None: somebody chose one.
    """

    model: LanguageModel
    vocabulary: Vocabulary
    start_s: float = 0.0
    predicted: dict[str, float] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    drafter: Drafter | None = None
    levels: Mapping[str, PowerLevel] = field(default_factory=lambda: LEVELS)
    watch: PowerWatch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the models' threads."""
        self.model.close()
        if isinstance(self.drafter, DraftModel):
            self.drafter.model.close()

    def conversation(self, system: str | None = None) -> Conversation:
        """A new conversation, by the model's chat template."""
        return Conversation(self.model, self.vocabulary, system=system, sampling=self.sampling, drafter=self.drafter)

    def complete(self, prompt: str, *, most: int, answer: Answer | None = None) -> Iterator[Token]:
        """Continue a text as it is, without a chat template."""
        ids, table = self.vocabulary.encode(prompt, begin=True), self.model.sequence()
        try:
            yield from generate(
                self.model, self.vocabulary, ids, table, most=most, sampling=self.sampling, answer=answer, drafter=self.drafter
            )
        finally:
            table.cut(0)

    def work_at(self, power: str) -> None:
        """Change how much power is taken, from the next step on: normal, warm, critical, or auto (by the state of the machine).

        Raises:
            OptionError: there is no such level.
        """
        self.watch = work_at(self.model, power, self.levels)

    def record(self) -> Trace:
        """From now on, what every step does is added to the trace that is returned, beside what a plan predicted."""
        from hetsched.language.step_spans import Recorder

        trace, said = Trace("measured", self.model.graph.name, "host"), self.predicted
        steps = {"prefill": said["ttft_ms"] / 1e3, "decode": 1.0 / said["decode_tok_s"]} if said else {}
        origin = time.perf_counter_ns()
        self.model.recorder = Recorder(trace, self.model.queue, origin, steps)
        if isinstance(self.drafter, DraftModel):
            self.drafter.model.recorder = Recorder(trace, f"{self.model.queue} drafts", origin)
        return trace

    def acceptance(self, *answers: Answer) -> Acceptance:
        """What the model accepted of the drafter's guesses in some answers; :meth:`~hetsched.acceptance.Acceptance.save` keeps it.

        Raises:
            OptionError: nothing guesses, or no step is counted.
        """
        return acceptance_of(self.model, self.drafter, answers)

    def summary(self, answer: Answer) -> dict[str, Any]:
        """The stable keys of ``run --prompt --json``."""
        m, s = self.model, self.sampling
        out = {"model": m.graph.name, "soc": "host", **answer.summary()}
        out |= {"start_ms": self.start_s * 1e3, "threads": len(m.at_work), "cores": sorted(m.at_work), "context": m.context}
        out |= {"precision": m.activations_at(m.power.precision).name, "weights": m.weight_kinds}
        out |= {
            "adapter": m.adapter or None,
            "power": m.power.name,
            "power_note": None if self.watch is None else self.watch.note or None,
            "window": m.pool.window or None,
            "speculate": 0 if self.drafter is None else self.drafter.length,
            "drafter": None if self.drafter is None else self.drafter.kind.partition(":")[0],
        }
        out |= {"kv": f"{m.pool.shape.keys}/{m.pool.shape.values}", "kv_cache_mb": m.pool.most_bytes / 1e6}
        out |= {"peak_memory_mb": peak_memory_bytes() / 1e6, "weights_mb": m.weight_bytes / 1e6}
        out |= {"sampling": {"temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p, "repetition": s.repetition, "seed": s.seed}}
        return out | {f"predicted_{name}": value for name, value in self.predicted.items()}


def assistant(
    target: str | Path,
    *,
    context: int | None = None,
    kv: str = "fp16",
    precision: str = "auto",
    cores: tuple[int, ...] | None = None,
    sampling: Sampling | None = None,
    cache_bytes: int | None = None,
    shrink: bool = False,
    speculate: int | None = None,
    draft: str | Path | None = None,
    draft_layers: int | None = None,
    power: str = "normal",
    power_policy: str | Path | None = None,
    adapter: str | Path | None = None,
    protect: Sequence[str] | None = None,
    update: str | Path | Sequence[str | Path] = (),
) -> Assistant:
    """Open a model for generating text.

    Args:
        target: a GGUF file, a Hugging Face folder with its ``tokenizer.json``, or a plan file of a prompt and its answer for this machine.
        context: most tokens of a conversation (None: what the plan was made for, else 2048).
        kv: formats of the cache as ``KEYS/VALUES``, or one for both.
        precision: ``w4a16``, ``float`` or ``auto`` (activations of 16 bits: answers as in float32), ``w4a8`` (as int8: faster, less exact);
            weights that are stored as plain floats stay so at ``float`` and ``auto``, and get the bits that others name.
        cores: cores that compute (None: those of the plan's queues, else all that this process may use).
        sampling: how tokens are chosen (None: greedy).
        cache_bytes: memory that the caches may take (None: what the context needs).
        shrink: whether, where that does not suffice, tokens see less far back (half the context at least), then caches become int8.
        speculate: tokens that are guessed at once and checked in one step; 0: none (None, and no other option of guesses: as the plan has
            it, else none).
        draft: a smaller model with the same vocabulary that guesses (None: what followed the last tokens before).
        draft_layers: the model's own first layers, so many of them, guess instead.
        power: normal, warm, critical, or auto (by the state of the machine); ``work_at`` changes it at any time.
        power_policy: a YAML file that says what the levels take (None: as usual).
        adapter: a low-rank adapter (PEFT's folder, or GGUF) that is at work; ``model.attach`` and ``model.adapt`` swap them at any time.
        protect: patterns of names of weights that meet activations of 16 bits at ``w4a8``, too (None: the sensitive ones).
        update: files with updates of the weights (``hetsched delta``), one after another.

    Raises:
        OptionError: an option is out of range.
        PlanError: the plan is for another machine, or has no prompt and answer.
        ModelError: the file is damaged, or has no vocabulary or no weights.
        UnsupportedModelError: the model has something that has no kernel here.

    Examples:
        >>> with assistant("smollm2-135m-q4_1.gguf") as a:  # doctest: +SKIP
        ...     for token in a.conversation().say("What is the capital of France?", most=64):
        ...         print(token.text, end="")
        The capital of France is Paris.
    """
    begin = time.perf_counter()
    path = Path(target)
    predicted: dict[str, float] = {}
    weight_bits = WEIGHT_BITS.get(precision, 0)
    if _is_plan(path):
        plan = _of_plan(path)
        predicted, cores, context = plan.predicted, cores or plan.cores, context or plan.context
        precision = plan.precision if precision == "auto" else precision
        kv = plan.kv if kv == "fp16" else kv
        if plan.guesses is not None and (speculate, draft, draft_layers) == (None, None, None):
            speculate, draft, draft_layers = as_planned(plan.guesses, path.parent)
            predicted |= rate_of(plan.guesses)
        path = plan.model
    speculate = speculate or 0
    chosen = MEANT.get(precision, precision)
    if chosen not in PRECISIONS:
        raise OptionError(f"--precision {precision} is not one that text is generated with: use {', '.join((*PRECISIONS, *MEANT))}")
    vocabulary = vocabulary_of(path)
    keys, _, values = kv.partition("/")
    cores, context = cores or tuple(sorted(allowed())), context or CONTEXT
    levels = LEVELS if power_policy is None else read_power_policy(power_policy)
    shrinking = Shrink(window=max(context // 2, 1), integer=True) if shrink else None
    check_drafter(speculate, draft, draft_layers, vocabulary)
    model = LanguageModel(
        path, cores=cores, context=context, kv=(keys, values or keys), precision=chosen, protect=protect, cache_bytes=cache_bytes,
        shrink=shrinking, updates=[update] if isinstance(update, str | Path) else update, weight_bits=weight_bits,
    )  # fmt: skip
    watch = work_at(model, power, levels)
    drafter = drafter_of(speculate, draft, draft_layers, model, cores)
    if adapter is not None:
        name = Path(adapter).name
        model.attach(name, adapter)
        model.adapt(name)
    model.ready(long_prompts=False)
    follow(drafter, model)
    return Assistant(model, vocabulary, time.perf_counter() - begin, predicted, sampling or Sampling(), drafter, levels, watch)


def _is_plan(path: Path) -> bool:
    from hetsched.files import is_plan_file

    return is_plan_file(path)


class _Plan(NamedTuple):
    """What a plan file says: ``kv`` are formats of the cache, ``predicted`` figures without guessed tokens."""

    model: Path
    cores: tuple[int, ...]
    precision: str
    kv: str
    context: int
    predicted: dict[str, float]
    guesses: Speculation | None


def _of_plan(path: Path) -> _Plan:
    from hetsched.plans import Deployment
    from hetsched.socs import HOST

    deployment = Deployment.from_file(path)
    if deployment.soc.id != HOST:
        raise PlanError(f"{path} is for {deployment.soc.id}, and text is generated on this machine: plan for host")
    asked = deployment.language
    if asked is None or not asked.prompt:
        raise PlanError(f"{path} plans no prompt and answer: make it with 'hetsched plan MODEL --soc host --prompt N --generate N'")
    queues = dict.fromkeys(p.queue for entry in deployment.entries for p in entry.plan.placements)
    cores = tuple(sorted({core for queue in queues for core in cores_of(queue)}))
    integer = any(p.precision in ("w8a8", "w4a8") for entry in deployment.entries for p in entry.plan.placements)
    predicted = {}
    if asked.prediction is not None:
        p = asked.prediction
        predicted = {"ttft_ms": p.ttft_s * 1e3, "prefill_tok_s": p.prefill_rate, "decode_tok_s": p.decode_rate}
    model, context = path.parent / deployment.model.path, asked.prompt + asked.generate
    return _Plan(model, cores, "w4a8" if integer else "w4a16", asked.kv or "fp16", context, predicted, asked.speculation)
