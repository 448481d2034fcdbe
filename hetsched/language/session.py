"""A language model that is ready to compute: its weights, the programs of its steps, its paged cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import Graph, Role
from hetsched.language.adapters import Adapter, read_adapter
from hetsched.language.host_values import value_of
from hetsched.language.pages import PAGE_TOKENS, CacheShape, PagePool, PageTable
from hetsched.language.power import NORMAL, PowerLevel
from hetsched.language.precision import precision_of
from hetsched.language.residency import Residency, Shrink
from hetsched.language.states import state_elements
from hetsched.language.step import Step
from hetsched.language.weights import PackedStore
from hetsched.runtime.code import quickest
from hetsched.runtime.team import Team
from hetsched_kernels.paged_cache import page_bytes

Array = npt.NDArray[Any]
#: New tokens that a prompt's program takes at once, and those that a decode step takes at most.
PROMPT_TOKENS, FEW_TOKENS = 512, 16
#: Tokens of a sequence unless the caller says otherwise.
CONTEXT = 2048
_SPINS = 1 << 14


class LanguageModel:
    """A decoder and its programs. Use it as a context manager, or call :meth:`close`.

    Attributes:
        graph: the decode step of one token.
        context: most tokens of a sequence.
        threads: threads that compute a step.
        pool: pages of all sequences.
        residency: which of them are in memory.
        adapters: adapters that are attached, by name.
        adapter: the one at work; empty: none.
        power: the level that it works at; :meth:`work_at` changes it.
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

        Raises:
            OptionError: an option is out of range.
            UnsupportedModelError: the model has an operator that has no kernel here.
            ModelError: the file is damaged or has no weights.
        """
        if not 1 <= context <= 1 << 20:
            raise OptionError(f"--context {context} is out of range: use 1 to {1 << 20} tokens")
        self.path, self.context, self.precision = Path(path), context, precision
        self.graph = _decode_graph(self.path, context)
        self._activations = precision_of(precision, [op.inputs[1] for op in self.graph.ops if op.type == "Gemm"], protect)
        shape = cache_shape(self.graph, kv, page)
        pages = _page_count(shape, -(-max(pool_tokens or 0, context) // page) + 1, cache_bytes)
        self.pool = PagePool(shape, pages, state_elements(self.graph))
        self.residency = Residency(self.pool, context, shrink)
        about = self.path.stat()
        self._store = PackedStore(f"{self.graph.sha256[:24]}{about.st_mtime_ns & 0xFFFFFFFF:08x}")
        self._team = Team(f"cpu:{','.join(map(str, sorted(cores)))}", _SPINS, quickest())
        self.threads, self.power = self._team.threads, NORMAL
        self.adapters: dict[str, Adapter] = {}
        self.adapter = ""
        self._steps: dict[tuple[int, str], Step] = {}
        self._turns: dict[int, int] = {}
        self._stop = np.zeros(1, np.int64)
        self._stamps = np.zeros(0, np.int64)
        self.computing_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._team.close()

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are computed on, and of the embedding table."""
        return self._store.nbytes

    def sequence(self, priority: int = 0) -> PageTable:
        """A new sequence without tokens; where memory is short, those of the lowest priority leave it first."""
        return PageTable(self.pool, self.context, priority=priority)

    def ready(self, *, long_prompts: bool = True) -> None:
        """Build the programs and pack the weights now rather than at the first token; that of long prompts may wait."""
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
        self.adapters[name] = read_adapter(path, self.graph)

    def adapt(self, name: str = "") -> None:
        """Let the adapter ``name`` (empty: none) be at work from the next step on; sequences that go on keep their cache.

        Raises:
            OptionError: none is attached by that name.
        """
        if name and name not in self.adapters:
            raise OptionError(f"no adapter {name!r} is attached: there is {', '.join(self.adapters) or 'none'}")
        self.adapter = name

    def work_at(self, level: PowerLevel) -> None:
        """Change how much power is taken, from the next step on; allowed while tokens are being generated."""
        self.power = level
        self.residency.limit(level.window(self.context))

    def compute(self, tokens: Sequence[int], table: PageTable, *, scored: int = 1) -> Array:
        """Scores after new tokens, which the sequence has afterwards.

        Args:
            tokens: ids of the new tokens, at least one.
            table: the sequence.
            scored: of how many of the last tokens scores are wanted.

        Returns:
            float32 [scored, vocabulary]; a view that the next call overwrites where ``scored`` fits one step.

        Raises:
            OptionError: the context limit is exceeded.
            ExecutionError: no page is left.
        """
        if not tokens or not 1 <= scored <= len(tokens):
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

    def _step(self, few: bool) -> Step:
        capacity = FEW_TOKENS if few else PROMPT_TOKENS
        key = capacity, self.adapter
        if key not in self._steps:
            self._steps[key] = Step(
                self.graph, self.pool, self._store, capacity=capacity, scores=FEW_TOKENS if few else 1, threads=self.threads,
                context=self.context, precision=self._activations, adapter=self.adapters.get(self.adapter),
            )  # fmt: skip
            self._store.save()
        return self._steps[key]

    def _run(self, step: Step, tokens: Sequence[int], table: PageTable, scored: int) -> Array:
        rows, position = len(tokens), table.length
        self.residency.use(table)
        table.extend(rows)
        step.embedded[:rows] = value_of(self.graph, step.input, "input_ids", np.asarray(tokens, np.int64))
        step.pages[: len(table.pages)] = table.numbers[: len(table.pages)]
        step.states[:] = table.states
        self.pool.recent.use(table)
        step.prepare(rows, position, scored, self._window(table), table.fresh)
        turn, threads = self._turns.get(id(step), 0), self.power.threads(self.threads)
        self._turns[id(step)] = turn + (threads > 1)
        program, shared = step.program.program, step.program.shared
        begin = time.perf_counter()
        self._team.run(program.table, program.steps, shared, self._stop, self._stamps, 0, len(program.steps) - 1, turn, threads)
        self.computing_s += time.perf_counter() - begin
        if self._stop[0]:
            raise ExecutionError("the step was given up")
        table.length += rows
        table.states[:] = step.states
        table.fresh = self.pool.recent.after(table.fresh, rows, table.length) if self.pool.recent.memory.size else 0
        table.tokens.extend(tokens)
        table.adapter = self.adapter
        return step.logits[:scored]

    def _window(self, table: PageTable) -> int:
        """Tokens that the next one sees: by the pool's window, and by what the sequence has forgotten. 0: all."""
        limits = [w for w in (self.pool.window, table.length + 1 - table.gone if table.gone else 0) if w]
        return min(limits, default=0)


def _page_count(shape: CacheShape, wanted: int, cache_bytes: int | None) -> int:
    """Pages of a pool: as many as are wanted, or as fit.

    Raises:
        OptionError: not even two fit.
    """
    if cache_bytes is None or not shape.layers:
        return wanted
    one = shape.layers * page_bytes(shape.geometry())
    if cache_bytes < 2 * one:
        raise OptionError(f"the cache may take {cache_bytes} bytes, and two pages of {shape.page} tokens take {2 * one}: give it more")
    return min(wanted, cache_bytes // one)


def _decode_graph(path: Path, context: int) -> Graph:
    graph = load(path, {"tokens": 1, "past": max(context - 1, 0), "logits": 1})
    if "input_ids" not in graph.inputs or not any(graph.tensors[n].role is Role.STATE for n in graph.inputs):
        raise UnsupportedModelError(f"{path.name} is no decoder with an embedding and caches: text cannot be generated with it")
    absent = next((t for t in graph.tensors.values() if t.data is not None and not t.data.is_present), None)
    if absent is not None:
        raise ModelError(f"the weights of {path.name} are absent (the first is {absent.name!r}): it can be planned but not run")
    return graph


def cache_shape(graph: Graph, kv: tuple[str, str], page: int) -> CacheShape:
    """What the caches of a decoder hold.

    Raises:
        UnsupportedModelError: its layers differ.
    """
    layers = [op for op in graph.ops if op.type == "GroupQueryAttention"]
    shapes = {tuple(op.attr_int(n, 0) for n in ("num_heads", "kv_num_heads", "head_dim")) for op in layers}
    if not layers:
        return CacheShape(0, 1, 1, 1, *kv, page)
    if len(shapes) != 1:
        raise UnsupportedModelError(f"{graph.name!r} has {len(shapes)} kinds of attention layers, and generating text needs one")
    heads, shared, dim = shapes.pop()
    return CacheShape(len(layers), heads, shared, dim, *kv, page)
