"""Generating text: a model file, or a plan of a prompt and its answer for this machine, opened and asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hetsched.errors import OptionError, PlanError
from hetsched.language.conversation import Conversation
from hetsched.language.generation import Answer, Token, generate
from hetsched.language.gguf_vocabulary import read_vocabulary
from hetsched.language.power import level_named
from hetsched.language.precision import PRECISIONS
from hetsched.language.residency import Shrink
from hetsched.language.sampling import Sampling
from hetsched.language.session import CONTEXT, LanguageModel
from hetsched.language.speculation import Drafter, DraftModel, Lookup, check_length
from hetsched.language.vocabulary import Vocabulary
from hetsched.runtime.affinity import cores_of

#: What ``--precision`` of other verbs means here.
_PRECISIONS = {"auto": "w4a16", "w8a8-dynamic": "w4a8", "float": "w4a16"}


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
    """

    model: LanguageModel
    vocabulary: Vocabulary
    start_s: float = 0.0
    predicted: dict[str, float] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    drafter: Drafter | None = None

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

    def summary(self, answer: Answer) -> dict[str, Any]:
        """The stable keys of ``run --prompt --json``."""
        m, s = self.model, self.sampling
        out = {"model": m.graph.name, "soc": "host", **answer.summary()}
        out |= {"start_ms": self.start_s * 1e3, "threads": m.threads, "precision": m.precision, "context": m.context}
        out |= {
            "adapter": m.adapter or None,
            "power": m.power.name,
            "window": m.pool.window or None,
            "speculate": 0 if self.drafter is None else self.drafter.length,
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
    speculate: int = 0,
    draft: str | Path | None = None,
    power: str = "normal",
    adapter: str | Path | None = None,
    protect: Sequence[str] | None = None,
) -> Assistant:
    """Open a model for generating text.

    Args:
        target: a GGUF file, or a plan file of a prompt and its answer for this machine.
        context: most tokens of a conversation (None: what the plan was made for, else 2048 or what the model has).
        kv: formats of the cache as ``KEYS/VALUES``, or one for both.
        precision: ``w4a16``, ``float`` or ``auto`` (activations of 16 bits: answers as in float32), ``w4a8`` (as int8: faster, less exact).
        cores: cores that compute (None: those of the plan's queues, else all that this process may use).
        sampling: how tokens are chosen (None: greedy).
        cache_bytes: memory that the caches may take (None: what the context needs).
        shrink: whether, where that does not suffice, tokens see less far back (half the context at least), then caches become int8.
        speculate: tokens that are guessed at once and checked in one step; 0: none.
        draft: a smaller model with the same vocabulary that guesses (None: what followed the last tokens before).
        power: normal, warm or critical; ``model.work_at`` changes it at any time.
        adapter: a low-rank adapter (PEFT's folder, or GGUF) that is at work; ``model.attach`` and ``model.adapt`` swap them at any time.
        protect: patterns of names of weights that meet activations of 16 bits at ``w4a8``, too (None: the sensitive ones).

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
    if _is_plan(path):
        path, planned_cores, planned_precision, planned_context, predicted = _of_plan(path)
        cores = cores or planned_cores
        precision = planned_precision if precision == "auto" else precision
        context = context or planned_context
    chosen = _PRECISIONS.get(precision, precision)
    if chosen not in PRECISIONS:
        raise OptionError(f"--precision {precision} is not one that text is generated with: use {', '.join((*PRECISIONS, *_PRECISIONS))}")
    _check_format(path)
    vocabulary = read_vocabulary(path)
    keys, _, values = kv.partition("/")
    cores, context, level = cores or tuple(sorted(os.sched_getaffinity(0))), context or CONTEXT, level_named(power)
    shrinking = Shrink(window=max(context // 2, 1), integer=True) if shrink else None
    drafter = _drafter(speculate, draft, vocabulary, cores, context, chosen)
    model = LanguageModel(
        path, cores=cores, context=context, kv=(keys, values or keys), precision=chosen, protect=protect, cache_bytes=cache_bytes,
        shrink=shrinking,
    )  # fmt: skip
    model.work_at(level)
    if adapter is not None:
        name = Path(adapter).name
        model.attach(name, adapter)
        model.adapt(name)
    model.ready(long_prompts=False)
    return Assistant(model, vocabulary, time.perf_counter() - begin, predicted, sampling or Sampling(), drafter)


def _check_format(path: Path) -> None:
    """Refuse a model of another format by its name, not as a damaged GGUF file.

    Raises:
        OptionError: it is not a GGUF file.
    """
    from hetsched.frontends import format_of

    if path.exists() and (kind := format_of(path)) != "gguf":
        raise OptionError(f"text is generated from GGUF files, which hold the vocabulary, and {path} is of the format {kind}")


def _drafter(
    length: int, draft: str | Path | None, vocabulary: Vocabulary, cores: tuple[int, ...], context: int, precision: str
) -> Drafter | None:  # fmt: skip
    """What guesses ``length`` tokens.

    Raises:
        OptionError: the length is out of range, or the smaller model has another vocabulary.
    """
    if not check_length(length):
        if draft is not None:
            raise OptionError(f"--draft {draft} guesses no token: say how many with --speculate N")
        return None
    if draft is None:
        return Lookup(length)
    other = Path(draft)
    if read_vocabulary(other).tokens != vocabulary.tokens:
        raise OptionError(f"--draft {other} has another vocabulary than the model: use a smaller one of the same family")
    return DraftModel(LanguageModel(other, cores=cores, context=context, precision=precision), length)


def _is_plan(path: Path) -> bool:
    from hetsched.files import is_plan_file

    return is_plan_file(path)


def _of_plan(path: Path) -> tuple[Path, tuple[int, ...], str, int, dict[str, float]]:
    """Model, cores, precision, context and predictions of a plan file."""
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
    integer = any(p.precision == "w8a8" for entry in deployment.entries for p in entry.plan.placements)
    predicted = {}
    if asked.prediction is not None:
        p = asked.prediction
        predicted = {"ttft_ms": p.ttft_s * 1e3, "prefill_tok_s": p.prefill_rate, "decode_tok_s": p.decode_rate}
    return path.parent / deployment.model.path, cores, "w4a8" if integer else "w4a16", asked.prompt + asked.generate, predicted


def peak_memory_bytes() -> int:
    """Most memory that this process has held, in bytes."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
