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
from hetsched.graph import Graph
from hetsched.language.host_values import value_of
from hetsched.language.pages import PAGE_TOKENS, CacheShape, PagePool, PageTable
from hetsched.language.step import Step
from hetsched.language.weights import PackedStore
from hetsched.runtime.team import Team

Array = npt.NDArray[Any]
#: New tokens that a prompt's program takes at once, and those that a decode step takes at most.
PROMPT_TOKENS, FEW_TOKENS = 512, 16
#: Tokens of a sequence unless the caller says otherwise.
CONTEXT = 2048
PRECISIONS = ("w4a8", "w4a16")
_SPINS = 1 << 14


class LanguageModel:
    """A decoder and its programs. Use it as a context manager, or call :meth:`close`.

    Attributes:
        graph: the decode step of one token.
        context: most tokens of a sequence.
        threads: threads that compute a step.
        pool: pages of all sequences.
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

        Raises:
            OptionError: an option is out of range.
            UnsupportedModelError: the model has an operator that has no kernel here.
            ModelError: the file is damaged or has no weights.
        """
        if precision not in PRECISIONS:
            raise OptionError(f"the precision {precision!r} is not one that text is generated with: use {' or '.join(PRECISIONS)}")
        if not 1 <= context <= 1 << 20:
            raise OptionError(f"--context {context} is out of range: use 1 to {1 << 20} tokens")
        self.path, self.context, self.precision = Path(path), context, precision
        self.graph = _decode_graph(self.path, context)
        shape = cache_shape(self.graph, kv, page)
        self.pool = PagePool(shape, -(-max(pool_tokens or 0, context) // page) + 1)
        about = self.path.stat()
        self._store = PackedStore(f"{self.graph.sha256[:24]}{about.st_mtime_ns & 0xFFFFFFFF:08x}")
        self._team = Team(f"cpu:{','.join(map(str, sorted(cores)))}", _SPINS)
        self.threads = self._team.threads
        self._steps: dict[int, Step] = {}
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

    def sequence(self) -> PageTable:
        """A new sequence without tokens."""
        return PageTable(self.pool, self.context)

    def ready(self, *, long_prompts: bool = True) -> None:
        """Build the programs and pack the weights now rather than at the first token; that of long prompts may wait."""
        for few in (True, False) if long_prompts else (True,):
            self._step(few)

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
        start, count = 0, len(tokens)
        while count - start > PROMPT_TOKENS:
            self._run(self._step(False), tokens[start : start + PROMPT_TOKENS], table, 1)
            start += PROMPT_TOKENS
        few = count - start <= FEW_TOKENS
        if not few and scored > 1:
            self._run(self._step(False), tokens[start : count - scored], table, 1)
            start, few = count - scored, True
        return self._run(self._step(few), tokens[start:], table, scored)

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
        if capacity not in self._steps:
            self._steps[capacity] = Step(
                self.graph, self.pool, self._store, capacity=capacity, scores=FEW_TOKENS if few else 1, threads=self.threads,
                context=self.context, precision=self.precision,
            )  # fmt: skip
            self._store.save()
        return self._steps[capacity]

    def _run(self, step: Step, tokens: Sequence[int], table: PageTable, scored: int) -> Array:
        rows, position = len(tokens), table.length
        table.extend(rows)
        step.embedded[:rows] = value_of(self.graph, step.input, "input_ids", np.asarray(tokens, np.int64))
        step.pages[: len(table.pages)] = table.pages
        step.prepare(rows, position, scored)
        turn = self._turns.get(step.capacity, 0)
        self._turns[step.capacity] = turn + 1
        program, shared = step.program.program, step.program.shared
        begin = time.perf_counter()
        self._team.run(program.table, program.steps, shared, self._stop, self._stamps, 0, len(program.steps) - 1, turn)
        self.computing_s += time.perf_counter() - begin
        if self._stop[0]:
            raise ExecutionError("the step was given up")
        table.length += rows
        return step.logits[:scored]


def _decode_graph(path: Path, context: int) -> Graph:
    graph = load(path, {"tokens": 1, "past": max(context - 1, 0), "logits": 1})
    if "input_ids" not in graph.inputs or "position_ids" not in graph.inputs:
        raise UnsupportedModelError(f"{path.name} is no decoder with an embedding and positions: text cannot be generated with it")
    absent = next((t for t in graph.tensors.values() if t.data is not None and not t.data.is_present), None)
    if absent is not None:
        raise ModelError(f"the weights of {path.name} are absent (the first is {absent.name!r}): it can be planned but not run")
    return graph


def cache_shape(graph: Graph, kv: tuple[str, str], page: int) -> CacheShape:
    """What the caches of a decoder hold.

    Raises:
        UnsupportedModelError: its layers differ, or it has no attention.
    """
    layers = [op for op in graph.ops if op.type == "GroupQueryAttention"]
    shapes = {tuple(op.attr_int(n, 0) for n in ("num_heads", "kv_num_heads", "head_dim")) for op in layers}
    if len(shapes) != 1:
        raise UnsupportedModelError(f"{graph.name!r} has {len(shapes)} kinds of attention layers, and generating text needs one")
    heads, shared, dim = shapes.pop()
    return CacheShape(len(layers), heads, shared, dim, *kv, page)
