"""What the operators of a step take on this machine: the session's own programs of a model's first layers, timed step by step.

Layers are alike, so some of them stand for all: as many as hold more weights than the cores' own caches, so that weights come from
where they come from when all layers are computed. The fastest run of each setting counts; settings take turns, so that a slow moment
hits some runs of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.language.decode_graph import first_layers
from hetsched.language.sampling import Chooser, Sampling
from hetsched.language.session import PROMPT_TOKENS, LanguageModel
from hetsched.language.step_spans import Recorder
from hetsched.language.step_values import FEW_TOKENS
from hetsched.step_times import Points, StepTimes
from hetsched.trace import Trace
from hetsched_cost_models.host.timing import pinned
from hetsched_cost_models.session_steps import AROUND, CHOICE, Operator, key_of, operators_of

#: Tokens of the longest sequence, and (new tokens, tokens before them) of what is timed.
CONTEXT = 1600
FEW = ((1, 32), (1, 512), (1, CONTEXT - 1), (4, 32), (8, 32), (FEW_TOKENS, 32), (FEW_TOKENS, 512))
MANY = ((FEW_TOKENS + 1, 0), (32, 0), (128, 0), (PROMPT_TOKENS, 0))
#: What is timed, too, on the largest team alone, as one core takes long.
MORE = ((64, 0), (256, 0), (PROMPT_TOKENS, PROMPT_TOKENS))
#: Weights of the layers that are timed: where each is used often, and where what takes long is timed, fewer will do.
_ENOUGH_BYTES, _FEWER_BYTES = 128 << 20, 24 << 20
#: Rows from which on fewer will do.
_MANY_ROWS = 512
#: Turns at least and at most, and the seconds after which no other begins.
_TURNS, _MOST_TURNS, _LIMIT_S = 3, 6, 5.0
#: Runs of one row in a turn; others run once.
_RUNS = 10


class _Stamps(Recorder):
    """Keeps the stamps of the last step alone: spans would take time that no session takes."""

    def step(self, labels: Sequence[str], rows: int, position: int, begin_ns: int, stamps: npt.NDArray[np.int64]) -> None:
        """Keep what the step's operators took."""
        self.seconds: dict[str, float] = {}
        for label, taken in zip(labels, np.diff(stamps, prepend=begin_ns).tolist(), strict=True):
            self.seconds[label] = self.seconds.get(label, 0.0) + taken * 1e-9


class _Timed(LanguageModel):
    """A session whose steps of single programs are timed."""

    def layers(self, nbytes: int) -> int:
        """How many first layers hold so many bytes of weights; 0: all do not, or the model cannot be cut."""
        weights = sum(t.nbytes for t in self.graph.tensors.values() if t.is_constant and ".weight" in t.name and len(t.shape) == 2)
        count = max(sum(op.type == "GroupQueryAttention" for op in self.graph.ops), 1)
        wanted = max(2, -(-nbytes * count // max(weights, 1)))
        try:
            first_layers(self.graph, wanted)
        except OptionError:
            return 0
        return wanted

    @property
    def wide(self) -> tuple[str, ...]:
        """Weights that meet 16 bits although others meet eight."""
        activations = self.activations_at()
        names = dict.fromkeys(op.inputs[1] for op in self.graph.ops if op.type == "Gemm")
        return tuple(n for n in names if self.precision == "w4a8" and activations.of(n) == "int16")

    def runs(self, count: int, rows: int, position: int, layers: int) -> tuple[list[float], list[dict[str, float]]]:
        """``count`` runs of a step, one right after another: seconds of the whole, and of parts by the operator that begins there.

        Stamping parts takes time, which counts where rows are few: those have ``count`` other runs for the parts.
        """
        table, few, wholes, parts = self.sequence(), rows <= FEW_TOKENS, list[float](), list[dict[str, float]]()
        table.extend(position)
        table.length = position
        step, scored = self._step(few, layers), rows if few else 1
        stamps = _Stamps(Trace("measured", self.graph.name, "host"), self.queue, 0)
        for stamped in (False, True) * count if few else (True,) * count:
            self.recorder = stamps if stamped else None
            begin = time.perf_counter()
            self._run(step, [0] * rows, table, scored)
            taken = time.perf_counter() - begin
            wholes += [] if stamped and few else [taken]
            parts += [stamps.seconds] if stamped else []
            table.cut(position)
        table.cut(0)
        return wholes, parts


class _Setting:
    """Runs of one number of rows after one number of tokens on one team; the fastest is kept."""

    def __init__(self, model: _Timed, rows: int, position: int, layers: int) -> None:
        self.model, self.rows, self.position, self.layers = model, rows, position, layers
        self.few = rows <= FEW_TOKENS
        self.whole_s: list[float] = []
        self.parts: dict[str, float] = {}

    def turn(self) -> None:
        """Some runs, whose mean counts as one."""
        with pinned(self.model.at_work[:1]):
            wholes, parts = self.model.runs(_RUNS if self.rows == 1 else 1, self.rows, self.position, self.layers)
        self.whole_s.append(mean(wholes))  # as the steps of an answer follow each other
        self.parts = min(([self.parts] if self.parts else []) + parts, key=lambda run: sum(run.values()))

    @property
    def spread(self) -> float:
        """How much slower than the fastest run the typical one was."""
        return median(self.whole_s) / min(self.whole_s) - 1.0

    def points(self, wide: Sequence[str]) -> Iterator[tuple[str, tuple[float, float, float]]]:
        """The times of operators by their name, those of one kind and size as their mean without the first, which begins cold.

        What the whole step took beside these is what it takes around its operators.
        """
        graph = first_layers(self.model.graph, self.layers)
        operators = operators_of(graph, wide)
        rest, spans = min(self.whole_s), self.parts
        found: dict[Operator, list[float]] = {}
        for operator, seconds in zip(operators, _shared(graph, operators, spans), strict=True):
            if operator.kind and operator.kind != AROUND:
                found.setdefault(operator, []).append(seconds)
        for operator, values in found.items():
            seconds = mean(values[1:] if len(values) > 2 else values)
            rest -= seconds * len(values)
            if self.few or not operator.tail:
                yield key_of(operator, self.few), (self.rows, operator.work(self.rows, self.position), seconds)
        yield key_of(Operator(AROUND, 1.0), self.few), (self.rows, 1.0, max(rest, 0.0))


def _shared(graph: Graph, operators: Sequence[Operator], spans: dict[str, float]) -> list[float]:
    """Seconds of each operator: those of a program's step are shared out by size among the operators of a kind that follow its first."""
    groups: list[list[int]] = []
    seconds: list[float] = []
    for i, op in enumerate(graph.ops):
        if op.name in spans:
            groups.append([i])
            seconds.append(spans[op.name])
        elif groups and operators[i].kind == operators[groups[-1][0]].kind and operators[i].kind:
            groups[-1].append(i)
    out = [0.0] * len(graph.ops)
    for members, whole in zip(groups, seconds, strict=True):
        total = sum(operators[i].size for i in members)
        for i in members:
            out[i] = whole * operators[i].size / total if total else whole / len(members)
    return out


class StepTiming:
    """Settings of a model on some teams of cores. Use it as a context manager, or call :meth:`close`."""

    def __init__(self, path: Path, teams: Sequence[tuple[int, ...]], precision: str, kv: tuple[str, str] = ("fp16", "fp16")) -> None:
        """Prepare the first layers of the model at ``path``.

        Args:
            path: a model file with weights.
            teams: cores that compute together, the largest team last.
            precision: ``w4a8`` or ``w4a16``.
            kv: formats of keys and values.

        Raises:
            ModelError: the file is damaged or has no weights.
            UnsupportedModelError: the model has something that has no kernel here.
        """
        self._models = [_Timed(path, cores=c, context=CONTEXT, kv=kv, precision=precision) for c in teams]
        largest = self._models[-1]
        enough, fewer = largest.layers(_ENOUGH_BYTES), largest.layers(_FEWER_BYTES)
        self._settings = [_Setting(m, *s, enough) for m in self._models for s in FEW]
        for model, settings in [(m, MANY) for m in self._models] + [(largest, MORE)]:
            self._settings += [_Setting(model, *s, enough if model is largest and s[0] < _MANY_ROWS else fewer) for s in settings]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        for model in self._models:
            model.close()

    def turn(self) -> None:
        """Time every setting once more."""
        for setting in self._settings:
            setting.turn()

    def times(self) -> StepTimes:
        """What the fastest runs so far took."""
        first, choice = self._models[0], _choice(self._models[0].graph)
        teams = {m.threads: _merged(p for s in self._settings if s.model is m for p in s.points(first.wide)) for m in self._models}
        for known in teams.values():
            known[key_of(Operator(CHOICE), True)] = (choice,)
        spread = median(s.spread for s in self._settings)
        return StepTimes(precision=first.precision, few=FEW_TOKENS, most=PROMPT_TOKENS, wide=first.wide, spread=spread, teams=teams)


def measure_steps(
    path: Path, teams: Sequence[tuple[int, ...]], precision: str, kv: tuple[str, str], progress: Callable[[str], None]
) -> StepTimes:  # fmt: skip
    """Time the steps of the model at ``path``, as :class:`StepTiming` does, for some seconds; ``progress`` is told what is being done.

    Raises:
        ModelError: the file is damaged or has no weights.
        UnsupportedModelError: the model has something that has no kernel here.
    """
    progress("preparing the model's layers")
    with StepTiming(path, teams, precision, kv) as timing:
        end, turn = time.perf_counter() + _LIMIT_S, 0
        while turn < _TURNS or (time.perf_counter() < end and turn < _MOST_TURNS):
            turn += 1
            progress(f"timing its steps, turn {turn}")
            timing.turn()
        return timing.times()


def _merged(points: Iterable[tuple[str, tuple[float, float, float]]]) -> dict[str, Points]:
    """The points of each name, those of the same rows and work as their mean."""
    found: dict[str, dict[tuple[float, float], list[float]]] = {}
    for name, (rows, work, seconds) in points:
        found.setdefault(name, {}).setdefault((rows, work), []).append(seconds)
    return {name: tuple((n, w, mean(s)) for (n, w), s in sorted(known.items())) for name, known in found.items()}


def _choice(graph: Graph) -> tuple[float, float, float]:
    """The point of choosing the best token."""
    vocabulary = next(graph.tensors[n].shape[-1] for n in graph.outputs if n not in graph.states)
    chooser, scores = Chooser(Sampling(), vocabulary), np.random.default_rng(0).standard_normal(vocabulary, np.float32)
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        chooser.choose(scores, [0])
        best = min(best, time.perf_counter() - begin)
    return 1.0, float(vocabulary), best
