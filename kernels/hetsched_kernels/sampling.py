"""Choosing the next token from its scores: repetition penalty, temperature, the k best, the best that have probability p.

In this order, as Hugging Face's generation has it. A draw is a function of the state alone (splitmix64, Steele et al., 2014):
the same seed gives the same tokens whatever else runs. Equal scores go by position, the lower first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, InI64, OutF32, OutI64, OutU64
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.extremes import row_max
from hetsched_kernels.parts import as_i32, span
from hetsched_kernels.softmax import row_sum

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_UNIT = 2.0**-53
#: Scores that are looked at together: most runs hold none of the best.
_RUN = 256


@block
def draw(state: Any, index: Any) -> Any:
    """The next number of a stream, float64 in [0, 1); ``state[index]`` goes on."""
    z = np.uint64(state[index] + _STEP)
    state[index] = z
    z = np.uint64(np.uint64(z ^ (z >> _S30)) * _FIRST)
    z = np.uint64(np.uint64(z ^ (z >> _S27)) * _SECOND)
    z = np.uint64(z ^ (z >> _S31))
    return np.float64(np.uint64(z >> _S11)) * _UNIT


@block
def _penalize(scores: Any, logits: Any, recent: Any, penalty: Any) -> None:
    """Scores of tokens that came before: divided where positive, multiplied where not, once however often they came."""
    for i in range(recent.shape[0]):
        token = recent[i]
        if 0 <= token < scores.shape[0]:
            value = logits[token]
            scores[token] = value / penalty if value > _ZERO else value * penalty


@block
def _first_best(scores: Any) -> Any:
    largest = row_max(scores)
    for i in range(scores.shape[0]):
        if scores[i] == largest:
            return i
    return 0


@block
def _above(values: Any, ids: Any, a: Any, b: Any, largest: Any) -> Any:
    """Whether entry ``a`` belongs above entry ``b`` in a heap of the largest, or of the smallest, first."""
    if values[a] == values[b]:
        return (ids[a] < ids[b]) == largest
    return (values[a] > values[b]) == largest


@block
def _swap(values: Any, ids: Any, a: Any, b: Any) -> None:
    values[a], values[b] = values[b], values[a]
    ids[a], ids[b] = ids[b], ids[a]


@block
def _sink(values: Any, ids: Any, at: Any, count: Any, largest: Any) -> None:
    """Let entry ``at`` of a heap of ``count`` sink to its place."""
    while True:
        top, left = at, 2 * at + 1
        for child in range(left, min(left + 2, count)):
            if _above(values, ids, child, top, largest):
                top = child
        if top == at:
            return
        _swap(values, ids, at, top)
        at = top


@block
def _heap(values: Any, ids: Any, count: Any, largest: Any) -> None:
    for at in range(count // 2 - 1, -1, -1):
        _sink(values, ids, at, count, largest)


@block
def _best(scores: Any, values: Any, ids: Any, k: Any) -> None:
    """The k best scores and their positions, in no order: a heap with the worst of them on top."""
    n = scores.shape[0]
    for i in range(k):
        values[i], ids[i] = scores[i], i
    _heap(values, ids, k, False)
    for start in range(k, n, _RUN):
        count = min(_RUN, n - start)
        if not row_max(span(scores, start, count)) > values[0]:
            continue
        for i in range(start, start + count):
            if scores[i] > values[0]:
                values[0], ids[0] = scores[i], i
                _sink(values, ids, 0, k, False)


@block
def _weigh(values: Any, largest: Any, inverse: Any) -> None:
    """Scores become weights, e^((score - largest) / temperature)."""
    for i in range(values.shape[0]):
        values[i] = f.exp((values[i] - largest) * inverse)


@block
def _total(values: Any) -> Any:
    total = 0.0
    for start in range(0, values.shape[0], _RUN):
        total += np.float64(row_sum(span(values, start, min(_RUN, values.shape[0] - start))))
    return total


@block
def _worth_sorting(values: Any, ids: Any, total: Any, p: Any) -> Any:
    """Keep the weights that the share ``p`` can need: all that are left out have less than 1 - p together. How many there are."""
    n, kept = values.shape[0], 0
    least = (1.0 - np.float64(p)) * total / n
    for i in range(n):
        if np.float64(values[i]) >= least:
            values[kept], ids[kept] = values[i], i
            kept += 1
    return kept


@block
def _nucleus(values: Any, ids: Any, count: Any, wanted: Any) -> Any:
    """Move the largest weights to the end, largest last, until they have ``wanted`` together; how many they are."""
    _heap(values, ids, count, True)
    held, left = 0.0, count
    while left > 0 and (left == count or held < wanted):
        held += np.float64(values[0])
        left -= 1
        _swap(values, ids, 0, left)
        _sink(values, ids, 0, left, True)
    return count - left


@block
def _pick(values: Any, first: Any, last: Any, share: Any) -> Any:
    """The entry of [first, last) where the weights, summed from the last one, pass ``share`` of them all."""
    total = 0.0
    for i in range(first, last):
        total += np.float64(values[i])
    passed, target = 0.0, share * total
    for i in range(last - 1, first - 1, -1):
        passed += np.float64(values[i])
        if passed > target:
            return i
    return first


@block
def _drawn(scores: Any, values: Any, ids: Any, inverse: Any, k: Any, p: Any, share: Any) -> Any:
    """A token by its weight among those that ``k`` and ``p`` leave."""
    n, largest = scores.shape[0], row_max(scores)
    if 0 < k < n:
        _best(scores, values, ids, k)
        count = k
    else:
        for i in range(n):
            values[i], ids[i] = scores[i], i
        count = n
    _weigh(span(values, 0, count), largest, inverse)
    if count == n and p >= _ONE:
        return ids[_pick(values, 0, n, share)]
    total = _total(span(values, 0, count))
    wanted = np.float64(p) * total if p < _ONE else np.inf
    if count == n:
        count = _worth_sorting(span(values, 0, n), ids, total, p)
    kept = _nucleus(values, ids, count, wanted)
    return ids[_pick(values, count - kept, count, share)]


@kernel
def sample_f32(
    logits: InF32,
    recent: InI64,
    out: OutI64,
    state: OutU64,
    scratch: OutF32,
    rows: int,
    cols: int,
    temperature: float,
    k: int,
    p: float,
    penalty: float,
) -> None:
    """The next token of each row.

    Args:
        logits: [rows · cols] scores.
        recent: int64 tokens that came before, which ``penalty`` makes less likely; each counts once.
        out: int64 [rows], written.
        state: uint64 [rows], the state of each row's stream: any seed; goes on with every draw.
        scratch: float32 [:func:`~hetsched_kernels.sampling_scratch.sample_scratch`].
        rows: rows.
        cols: tokens of the vocabulary.
        temperature: the scores are divided by it; 0 takes the best one and draws nothing.
        k: only the k best count; 0 for all.
        p: of these, only the best that have this probability together; 1 for all.
        penalty: divides positive scores of ``recent`` and multiplies negative ones; 1 for none (Keskar et al., 2019).
    """
    scores, values, ids = span(scratch, 0, cols), span(scratch, cols, cols), as_i32(scratch, 2 * cols, cols)
    for r in range(rows):
        given = span(logits, r * cols, cols)
        for i in range(cols):
            scores[i] = given[i]
        if penalty != _ONE:
            _penalize(scores, given, recent, penalty)
        if temperature <= _ZERO or k == 1:
            out[r] = _first_best(scores)
        else:
            out[r] = _drawn(scores, values, ids, _ONE / temperature, k, p, draw(state, r))
