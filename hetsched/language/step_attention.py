"""Attention of a step: new keys and values into the pages, then a few queries over the pages, or a prompt's over heads read from them."""

from __future__ import annotations

import numpy as np

from hetsched.graph import Op
from hetsched.language.building import Building
from hetsched.language.fusion import Fused
from hetsched.language.run_values import Descriptor, Value, View
from hetsched.language.step_values import FEW_TOKENS, FIRST_NEWEST, FRESH_FROM, LENGTH, NEWEST, POSITION, ROWS, window_value
from hetsched_kernels.attention import attend_f32, attend_f32_scratch, attention_shape
from hetsched_kernels.paged_attention import attend_pages, attend_pages_scratch, merge_parts, parts_room
from hetsched_kernels.paged_cache import append_pages, heads_apart, read_pages
from hetsched_kernels.program import Call
from hetsched_kernels.tile import COLS

#: Calls of a few tokens' attention for each thread: enough to share evenly what differs in length.
_CALLS = 6


def attention(b: Building, one: Fused) -> None:
    """GroupQueryAttention of the new tokens over the cache and themselves."""
    op, (q, k, v), out = one.op, one.reads, one.writes[0]
    layer = b.next_layer()
    cache, geometry = b.pool.layer(layer), b.pool.geometry
    name = f"cache {layer}"
    calls = []
    for part in b.parts:
        args = (b.read(k), b.read(v), cache, b.pages, geometry, Value(POSITION), part.begin, part.rows)
        calls.append(Call(append_pages, (), args))
    recent = b.pool.recent
    if recent.memory.size:
        turns = np.arange(b.pages.size) % 2
        newest = (recent.memory[layer], turns, recent.geometry, Value(POSITION), Value(FIRST_NEWEST), Value(NEWEST))
        calls.append(Call(append_pages, (), (b.read(k), b.read(v), *newest)))
    b.emit(calls, [k, v], [name])
    if b.capacity <= FEW_TOKENS:
        _over_pages(b, op, q, out, layer)
    else:
        _over_heads(b, op, one.reads, out, layer)


def _over_pages(b: Building, op: Op, q: str, out: str, layer: int) -> None:
    shared = b.pool.shape.kv_heads
    cache, geometry, room = b.pool.layer(layer), b.pool.geometry, attend_pages_scratch(b.pool.geometry, b.capacity)
    rows = (Value(ROWS), Value(POSITION), window_value(op.attr_int("window", 0)))
    recent = (b.pool.recent.memory[layer], b.pool.recent.geometry, Value(FRESH_FROM))
    parts, turns = b.keep("parts", parts_room(geometry, b.capacity, b.context)), 1 if b.threads == 1 else -(-_CALLS * b.threads // shared)
    calls = []
    for head in range(shared):
        for turn in range(turns):
            scratch = b.keep(f"attention {head} {turn}", room)
            args = (b.read(q), cache, b.pages, geometry, *recent, parts, scratch, head, turn, turns, *rows)
            calls.append(Call(attend_pages, (), (*args, op.attr_float("scale", 1.0), op.attr_float("softcap", 0.0))))
    b.emit(calls, [q, f"cache {layer}"], ["parts"])
    to = b.write(out)
    b.emit([Call(merge_parts, (), (parts, geometry, to, head, *rows)) for head in range(shared)], ["parts"], [out])


def _over_heads(b: Building, op: Op, reads: tuple[str, ...], out: str, layer: int) -> None:
    q = reads[0]
    shape, context = b.pool.shape, b.context
    shared, dim, many = shape.kv_heads, shape.head_dim, shape.heads // shape.kv_heads
    each, apart = max(context, b.capacity) * dim + COLS, b.capacity * many * dim
    keys, values = b.keep("keys", shared * each), b.keep("values", shared * each)
    asked, answered = b.keep("asked", shared * apart), b.keep("answered", shared * apart)
    cache, geometry, width = b.pool.layer(layer), b.pool.geometry, many * dim
    reading = [
        Call(read_pages, (), (cache, b.pages, geometry, keys[h * each :][:each], values[h * each :][:each], h, Value(LENGTH)))
        for h in range(shared)
    ]
    moving = [
        Call(heads_apart, (), (p.of(b.read(q), shared * width), p.of(asked, width), p.rows, shared, width, apart, False)) for p in b.parts
    ]
    b.emit([*reading, *moving], [q, f"cache {layer}"], ["heads"])
    if b.pool.recent.memory.size:  # the new tokens see each other as they were computed
        exact = [
            Call(heads_apart, (), (p.of(b.read(n), shared * dim), View(to, Value(p.position, dim)), p.rows, shared, dim, each, False))
            for n, to in zip(reads[1:], (keys, values), strict=True)
            for p in b.parts
        ]
        b.emit(exact, reads[1:], ["heads"])
    calls = []
    room = attend_f32_scratch(attention_shape(b.capacity, max(context, b.capacity), many, 1, dim))
    for h in range(shared):
        scratch = b.keep(f"attention {h}", room)
        sizes = Descriptor((Value(ROWS), Value(LENGTH), many, 1, dim, window_value(op.attr_int("window", 0))))
        own = (asked[h * apart :][:apart], keys[h * each :][:each], values[h * each :][:each], answered[h * apart :][:apart])
        calls.append(Call(attend_f32, (), (*own, scratch, sizes, op.attr_float("scale", 1.0), op.attr_float("softcap", 0.0))))
    b.emit(calls, ["heads"], ["answered"])
    to = b.write(out)
    back = [Call(heads_apart, (), (p.of(answered, width), p.of(to, shared * width), p.rows, shared, width, apart, True)) for p in b.parts]
    b.emit(back, ["answered"], [out])
