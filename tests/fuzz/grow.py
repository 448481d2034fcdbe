"""Damage that multiplies: names made long wherever they occur, parts repeated many times; and damage to any protobuf wire format."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from mutate import NUMBERS, bytes_mutated

#: Lengths of names around the readers' own limits, and far over them.
LENGTHS = (130, 300, 4000, 5000, 60_000)
_REPEATS = (20, 300, 3000)
#: What a grown file may come to: larger ones are of no use to the fuzzer.
_MOST_BYTES = 900_000
_DEPTH = 12


def message_grown(rng: random.Random, message: Any) -> None:
    """A name of a protobuf message made long, wherever it occurs, or a part of it repeated, in place."""
    messages = _messages(message)
    if rng.random() < 0.6:
        names = sorted({text for m in messages for text in _texts(m) if text})
        if names:
            old = rng.choice(names)
            new = _long(rng, old)
            if sum(_texts(m).count(old) for m in messages) * len(new) < _MOST_BYTES:
                for m in messages:
                    _replace(m, old, new)
        return
    lists = [(m, field) for m in messages for field, value in m.ListFields() if field.is_repeated and len(value)]
    if lists:
        owner, field = rng.choice(lists)
        values = getattr(owner, field.name)
        part = rng.choice(list(values))
        size = part.ByteSize() if field.type == field.TYPE_MESSAGE else 8
        values.extend([part] * min(rng.choice(_REPEATS), _MOST_BYTES // max(size, 1)))


def _messages(root: Any) -> list[Any]:
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE and len(found) < 2000:
                found.extend(value if field.is_repeated else [value])
    return found


def _texts(message: Any) -> list[str]:
    """The texts in the message's own fields."""
    texts: list[Any] = []
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            texts += value if field.is_repeated else [value]
    return [t for t in texts if isinstance(t, str)]


def _replace(message: Any, old: str, new: str) -> None:
    for field, value in message.ListFields():
        if field.type != field.TYPE_STRING:
            continue
        if field.is_repeated:
            value[:] = [new if v == old else v for v in value]
        elif value == old:
            setattr(message, field.name, new)


def _long(rng: random.Random, name: str) -> str:
    """``name`` repeated up to a length."""
    length = rng.choice(LENGTHS)
    return (name * (length // max(len(name), 1) + 1))[:length]


def json_grown(rng: random.Random, text: bytes) -> bytes:
    """A JSON document with a text made long, wherever it occurs as a value or a key, or with an element repeated."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return bytes_mutated(rng, text)
    names: dict[str, int] = {}
    lists: list[list[Any]] = []
    _walk(tree, lambda t: names.update({t: names.get(t, 0) + 1}), lists.append)
    if lists and rng.random() < 0.4:
        values = rng.choice(lists)
        part = rng.choice(values)
        values.extend([part] * min(rng.choice(_REPEATS), _MOST_BYTES // max(len(json.dumps(part)), 1)))
    elif names:
        old = rng.choice(list(names))
        new = _long(rng, old)
        if names[old] * len(new) < _MOST_BYTES:
            tree = _renamed(tree, old, new)
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _walk(tree: Any, name: Callable[[str], None], several: Callable[[list[Any]], None]) -> None:
    if isinstance(tree, str):
        name(tree)
    elif isinstance(tree, list):
        if tree:
            several(tree)
        for part in tree:
            _walk(part, name, several)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            name(key)
            _walk(value, name, several)


def _renamed(tree: Any, old: str, new: str) -> Any:
    if isinstance(tree, str):
        return new if tree == old else tree
    if isinstance(tree, list):
        return [_renamed(part, old, new) for part in tree]
    if isinstance(tree, dict):
        return {(new if key == old else key): _renamed(value, old, new) for key, value in tree.items()}
    return tree


def wire_mutated(rng: random.Random, content: bytes, depth: int = 0) -> bytes:
    """A protobuf message of any kind with one field changed, at any depth; the lengths around it fit, but now and then one that lies."""
    fields = wire_fields(content)
    if not fields:
        return bytes_mutated(rng, content)
    at = rng.randrange(len(fields))
    number, wire, payload = fields[at]
    if wire == 2 and depth < _DEPTH and rng.random() < 0.75 and wire_fields(payload):
        fields[at] = number, wire, wire_mutated(rng, payload, depth + 1)
        return b"".join(_field(*f) for f in fields)
    out = [_field(*f) for f in fields]
    match rng.randrange(7):
        case 0:
            del out[at]
        case 1:
            out[at] *= min(rng.choice((2, *_REPEATS)), max(1, _MOST_BYTES // len(out[at])))
        case 2:
            out[at] = _field(rng.choice(fields)[0], wire, payload)
        case 3:
            out.insert(at, out.pop(rng.randrange(len(out))))
        case 4 if wire == 2:
            out[at] = varint(number << 3 | 2) + varint(rng.choice((len(payload) + 1, *NUMBERS)) % (1 << 64)) + payload
        case 5 if wire == 2:
            out[at] = _field(number, 2, (payload * (rng.choice(LENGTHS) // max(len(payload), 1) + 1)))
        case _ if wire == 0:
            out[at] = _field(number, 0, varint(rng.choice(NUMBERS) % (1 << 64)))
        case _:
            changed = bytes_mutated(rng, payload)
            out[at] = _field(number, wire, changed if wire == 2 else (changed + payload)[: len(payload)])
    return b"".join(out)


def wire_fields(content: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and payload of every field; empty if the bytes are no message."""
    fields: list[tuple[int, int, bytes]] = []
    at = 0
    while at < len(content):
        tag, at = _read_varint(content, at)
        number, wire, start = tag >> 3, tag & 7, at
        if wire == 0:
            _, at = _read_varint(content, at)
        elif wire == 2:
            length, start = _read_varint(content, at)
            at = start + length if start >= 0 else -1
        else:
            at += {1: 8, 5: 4}.get(wire, len(content) + 1)
        if not number or tag < 0 or start < 0 or not start <= at <= len(content):
            return []
        fields.append((number, wire, content[start:at]))
    return fields


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 for both if the bytes end before it."""
    value = 0
    for k, byte in enumerate(content[at : at + 10] if at >= 0 else b""):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    return -1, -1


def _field(number: int, wire: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(payload)) if wire == 2 else b"") + payload


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
