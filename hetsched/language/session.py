"""A language model that is ready to compute: its weights, the programs of its steps, its paged cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, OptionError
from hetsched.language.cache_shape import PAGE_TOKENS, cache_shape, page_count
from hetsched.language.decode_graph import decode_graph, first_layers, weights_identity
from hetsched.language.host_values import value_of
from hetsched.language.pages import PagePool, PageTable
from hetsched.language.power import NORMAL, PowerLevel
from hetsched.language.precision import Precision, precision_of
from hetsched.language.residency import Residency, Shrink
from hetsched.language.states import state_elements
from hetsched.language.step import Step
from hetsched.language.step_values import FEW_TOKENS
from hetsched.language.stored_steps import Wanted, step_of
from hetsched.language.turns import in_turn
from hetsched.language.weights import PackedStore
from hetsched.runtime.affinity import usable
from hetsched.runtime.code import quickest
from hetsched.runtime.sensors import core_speeds
from hetsched.runtime.team import Team

if TYPE_CHECKING:
    from hetsched.language.adapters import Adapter
    from hetsched.language.step_spans import Recorder

Array = npt.NDArray[Any]
#: New tokens that a prompt's program takes at once.
PROMPT_TOKENS = 512
#: Tokens of a sequence unless the caller says otherwise.
CONTEXT = 2048
_SPINS = 1 << 14


class LanguageModel:
    """A decoder and its programs. Use it as a context manager, or call :meth:`close`. Threads that share it take turns.

    Attributes:
        graph: the decode step of one token.
        context: most tokens of a sequence.
        queue: the cores that compute.
        threads: threads that compute a step.
        pool: pages of all sequences.
        residency: which of them are in memory.
        adapters: adapters that are attached, by name.
        adapter: the one at work; empty: none.
        power: the level that it works at; :meth:`work_at` changes it.
        at_work: cores that compute at this level.
        watch: asked for the level before each step; None: nobody is.
        recorder: collects what each step did when; None: nobody does.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        cores: Sequence[int] = (0,),
        context: int = CONTEXT,
        kv: tuple[str, str] = ("fp16", "fp16"),
        page: int = PAGE_TOKENS,
        pool_tokens: int | None = None,
        precision: str = "w4a8",
        protect: Sequence[str] | None = None,
        cache_bytes: int | None = None,
        shrink: Shrink | None = None,
        updates: Sequence[str | Path] = (),
        weight_bits: int = 0,
    ) -> None:
        """Prepare the model at ``path``.

        Args:
            path: a model file.
            cores: cores of this machine that compute.
            context: most tokens of a sequence.
            kv: formats of keys and values: fp16, fp8, int8, and int4 for values.
            page: tokens of a page of the cache.
            pool_tokens: tokens that all sequences' pages hold together (None: one sequence of ``context``).
            precision: ``w4a8`` (activations as int8 in groups) or ``w4a16`` (as two int8, 16 bits).
            protect: patterns of names of weights that meet 16 bits at ``w4a8``, too (None: the sensitive ones).
            cache_bytes: memory that the pages may take (None: what ``pool_tokens`` need).
            shrink: how the cache may shrink to stay within that (None: not at all).
            updates: files with updates of the weights, one after another.
            weight_bits: weights that are stored as plain floats become integers of 8 or 4 bits (0: they stay).

        Raises:
            OptionError: an option is out of range.
            UnsupportedModelError: the model has an operator that has no kernel here.
            ModelError: the file is damaged or has no weights.
        """
        if not 2 <= context <= 1 << 20:
            raise OptionError(f"--context {context} is out of range: use 2 to {1 << 20} tokens")
        self.path, self.context, self.precision, self._began_ns = Path(path), context, precision, time.time_ns()
        self.graph = decode_graph(self.path, context, updates, weight_bits, protect)
        self._protect, self._precisions = protect, dict[str, Precision]()
        self.activations_at(precision)
        shape = cache_shape(self.graph, kv, page)
        pages = page_count(shape, -(-max(pool_tokens or 0, context) // page) + 1, cache_bytes)
        self.pool = PagePool(shape, pages, state_elements(self.graph), cache_bytes)
        self.residency = Residency(self.pool, context, shrink)
        self._store = PackedStore(weights_identity(self.graph))
        self.queue = f"cpu:{','.join(map(str, sorted(cores)))}"
        self._team = Team(self.queue, _SPINS, quickest())
        self.threads, self.power, self._cores = self._team.threads, NORMAL, usable(self.queue) or tuple(cores[:1])
        self.at_work = self._cores
        self.watch: Callable[[], PowerLevel] | None = None
        self.adapters: dict[str, Adapter] = {}
        self.adapter = ""
        self._steps: dict[tuple[int, str, str, int], Step] = {}
        self._stop, self._tables = np.zeros(1, np.int64), dict[str, Array]()
        self._stamps = np.zeros(0, np.int64)
        self.computing_s = 0.0
        self.recorder: Recorder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @in_turn
    def close(self) -> None:
        """End the threads; nothing is computed any more."""
        self._team.close()

    @property
    def weight_kinds(self) -> str:
        """How the weights of products are stored, each kind once."""
        stored = (self.graph.tensors[op.inputs[1]] for op in self.graph.ops if op.type == "Gemm")
        return ", ".join(sorted({t.stored_as for t in stored}))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices as they are computed on; those whose rows alone are looked up stay in the model file."""
        return self._store.nbytes

    def sequence(self, priority: int = 0) -> PageTable:
        """A new sequence without tokens; where memory is short, those of the lowest priority leave it first."""
        return PageTable(self.pool, self.context, priority=priority)

    def ready(self, *, long_prompts: bool = True, layers: int = 0) -> None:
        """Build the programs and pack the weights now: not that of long prompts if it may wait, that of :meth:`early` for ``layers``."""
        if layers:
            self._step(True, layers)
        for few in (True, False) if long_prompts else (True,):
            self._step(few)

    def attach(self, name: str, path: str | Path) -> None:
        """Read an adapter from a file and call it ``name``; :meth:`adapt` puts it to work. The weights stay as they are.

        Raises:
            ModelError: it is damaged, or does not fit the model.
            OptionError: the name is empty or taken.
        """
        if not name or name in self.adapters:
            raise OptionError(f"an adapter cannot be called {name!r}: the name is empty or taken")
        from hetsched.language.adapters import read_adapter

        self.adapters[name] = read_adapter(path, self.graph)

    def adapt(self, name: str = "") -> None:
        """Let the adapter ``name`` (empty: none) be at work from the next step on; sequences that go on keep their cache.

        Raises:
            OptionError: none is attached by that name.
        """
        if name and name not in self.adapters:
            raise OptionError(f"no adapter {name!r} is attached: there is {', '.join(self.adapters) or 'none'}")
        self.adapter = name

    @in_turn
    def work_at(self, level: PowerLevel) -> None:
        """Change how much power is taken, from the next step on; allowed while tokens are being generated.

        A precision that is new gets programs of its own when it first computes, over the same weights; what is cached stays.
        """
        self.power = level
        self.residency.limit(level.window(self.context))
        self.at_work = level.cores(self._cores, core_speeds(self._cores))
        self._team.move(self.at_work)

    def activations_at(self, precision: str = "") -> Precision:
        """How activations meet the weights at a precision; empty: at the one that the model was opened with.

        Raises:
            OptionError: there is no such precision, or a protected weight that the model has not.
        """
        name = precision or self.precision
        if name not in self._precisions:
            self._precisions[name] = precision_of(name, [op.inputs[1] for op in self.graph.ops if op.type == "Gemm"], self._protect)
        return self._precisions[name]

    @in_turn
    def early(self, token: int, table: PageTable, layers: int) -> Array:
        """Scores [vocabulary] after one more token by the first ``layers`` layers, the last norm and the head.

        The sequence has it afterwards in these layers' caches only: cut it off before the model goes on. Raises as :meth:`compute`, and
        an :class:`OptionError` where there are not so many layers.
        """
        scores: Array = self._run(self._step(True, layers), [token], table, 1)[0]
        return scores

    @in_turn
    def compute(self, tokens: Sequence[int], table: PageTable, *, scored: int = 1) -> Array:
        """Scores after new tokens, which the sequence has afterwards.

        Args:
            tokens: ids of the new tokens, at least one.
            table: the sequence.
            scored: of how many of the last tokens scores are wanted.

        Returns:
            float32 [scored, vocabulary]; a view that the next call of any thread (``pool.lock``) overwrites where they fit one step.

        Raises:
            OptionError: the context limit is exceeded.
            ExecutionError: no page is left.
        """
        if self.watch is not None and (level := self.watch()) != self.power:
            self.work_at(level)
        if not 1 <= scored <= len(tokens):
            raise OptionError(f"scores of the last {scored} of {len(tokens)} tokens are wanted: give 1 to as many as there are")
        if scored > FEW_TOKENS:
            return self._many_scores(tokens, table, scored)
        start, count, most = 0, len(tokens), self._at_once()
        while count - start > most:
            self._run(self._step(False), tokens[start : start + most], table, 1)
            start += most
        few = count - start <= FEW_TOKENS
        if not few and scored > 1:
            self._run(self._step(False), tokens[start : count - scored], table, 1)
            start, few = count - scored, True
        return self._run(self._step(few), tokens[start:], table, scored)

    def _at_once(self) -> int:
        """Tokens of a prompt that a step takes: fewer where the cache may have to forget others for them."""
        if not self.residency.shrink.window:
            return PROMPT_TOKENS
        return min(PROMPT_TOKENS, max(self.pool.capacity * self.pool.shape.page // 8, FEW_TOKENS + 1))

    def _many_scores(self, tokens: Sequence[int], table: PageTable, scored: int) -> Array:
        """Scores of more rows than a step has: a few tokens at a time."""
        before, out = len(tokens) - scored, []
        if before:
            self.compute(tokens[:before], table)
        for at in range(before, len(tokens), FEW_TOKENS):
            few = tokens[at : at + FEW_TOKENS]
            out.append(self.compute(few, table, scored=len(few)).copy())
        return np.concatenate(out)

    def _step(self, few: bool, layers: int = 0) -> Step:
        capacity = FEW_TOKENS if few else PROMPT_TOKENS
        precision = self.activations_at(self.power.precision)
        key = capacity, self.adapter, precision.name, layers
        if key not in self._steps:
            graph, scores = first_layers(self.graph, layers), FEW_TOKENS if few else 1
            wanted = Wanted(graph, self.pool, precision, capacity, scores, self.threads, self.context)
            self._steps[key] = step_of(wanted, self._store, self._began_ns, self.adapters.get(self.adapter))
        return self._steps[key]

    def _run(self, step: Step, tokens: Sequence[int], table: PageTable, scored: int) -> Array:
        rows, position, ids = len(tokens), table.length, np.asarray(tokens, np.int64)
        if not 0 <= ids.min() <= ids.max() < step.logits.shape[1]:
            raise OptionError(
                f"a token of {ids.min()} to {ids.max()} is none of the model's {step.logits.shape[1]}: is the vocabulary its own?"
            )
        self.residency.use(table)
        table.extend(rows)
        step.embedded[:rows] = value_of(self.graph, step.input, "input_ids", ids, self._tables)
        step.pages[: len(table.pages)] = table.numbers[: len(table.pages)]
        step.states[:] = table.states
        window = self.residency.seen(table)
        step.prepare(rows, position, scored, window, table.fresh)
        program, shared, threads = step.program.program, step.program.shared, len(self.at_work)
        turn = int(shared[0]) // int(program.steps[1])  # calls of the first step that were taken: each turn takes all of them
        stamps = self._stamps if self.recorder is None else self.recorder.stamps(len(program.steps) - 1)
        begin = time.perf_counter_ns()
        self._team.run(program.table, program.steps, shared, self._stop, stamps, 0, len(program.steps) - 1, turn, threads)
        self.computing_s += (time.perf_counter_ns() - begin) * 1e-9
        if self._stop[0]:
            raise ExecutionError("the step was given up")
        if self.recorder is not None:
            self.recorder.step(step.labels, rows, position, begin, stamps)
        try:
            table.length += rows
            table.states[:] = step.states
            table.exact &= self.power.precision in ("", self.precision) and not 0 < window < table.length
            table.fresh = self.pool.recent.after(table.fresh, rows, table.length) if self.pool.recent.memory.size else 0
            table.tokens.extend(ids.tolist())
            table.adapter = self.adapter
        except BaseException:  # an interrupt: what is half of a sequence is none
            table.cut(0)
            raise
        return step.logits[:scored]
