"""Damage to files: bytes of any file, and the structure of protobuf messages, JSON documents and zip archives."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Change = Callable[[random.Random, bytes], bytes]

#: Numbers at the edges of the usual types, small negative ones, and sizes that overflow when multiplied.
NUMBERS = (
    0, 1, 2, 3, 7, 16, 255, 256, 65535, 65536, -1, -2, -128, 1 << 20, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 32, 1 << 40,
    1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1,
)  # fmt: skip
#: Texts that a reader may take for a path, a number, a name or several lines.
TEXTS = (
    "",
    "..",
    "../secret.bin",
    "/etc/hostname",
    "..\\secret.bin",
    "C:\\x",
    "link",
    "a\nb",
    "\x00",
    "x" * 300,
    "NaN",
    "é\u202e",
    "%s{0}",
    "-1",
)


def bytes_mutated(rng: random.Random, content: bytes, other: bytes = b"") -> bytes:
    """A few random edits: bits, bytes, numbers, blocks that vanish, repeat, move, or come from ``other``."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(out) + 1)
        size = rng.choice((1, 2, 4, 8, 16, 64))
        match rng.randrange(8):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at % len(out)] = rng.randrange(256)
            case 2 | 3:
                _overwrite(rng, out, at)
            case 4:
                del out[at : at + size]
            case 5:
                out[at:at] = out[at : at + size] or rng.randbytes(size)
            case 6:
                start = rng.randrange(len(other) + 1)
                out[at : at + size] = other[start : start + size]
            case _ if rng.random() < 0.2:
                del out[at:]
    return bytes(out)


def _overwrite(rng: random.Random, out: bytearray, at: int) -> None:
    """An interesting number over the bytes at ``at``, mostly aligned as flatbuffers and GGUF have them."""
    width = rng.choice((1, 2, 4, 4, 4, 8))
    at -= at % width if rng.random() < 0.8 else 0
    if at + width <= len(out):
        out[at : at + width] = (rng.choice(NUMBERS) % (1 << (8 * width))).to_bytes(width, "little")


def message_mutated(rng: random.Random, message: Any, times: int = 0) -> None:
    """Change fields of a protobuf message and of those in it, in place."""
    for _ in range(times or rng.choice((1, 1, 2, 3, 5))):
        messages = _messages(message)
        target = rng.choice(messages)
        _change(rng, target, rng.choice(target.DESCRIPTOR.fields), messages)


def _messages(root: Any, most: int = 2000) -> list[Any]:
    """The message and those in it, breadth first."""
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE and len(found) < most:
                found.extend(value if _repeated(field) else [value])
    return found


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change(rng: random.Random, message: Any, field: Any, messages: list[Any]) -> None:
    value = getattr(message, field.name)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        _change_message(rng, message, field, value, messages)
    elif _repeated(field):
        _change_list(rng, field, value, messages)
    else:
        new = _scalar(rng, field, messages)
        if new is not None:
            setattr(message, field.name, new)


def _change_message(rng: random.Random, message: Any, field: Any, value: Any, messages: list[Any]) -> None:
    """A message of the same type from elsewhere (an ancestor too: nesting), a repetition, or a loss."""
    alike = [m for m in messages if m.DESCRIPTOR is field.message_type]
    donor = rng.choice(alike) if alike else None
    if _repeated(field):
        if len(value) and rng.random() < 0.5:
            del value[rng.randrange(len(value))]
        elif donor is not None and donor.ByteSize() < 1 << 16:
            copy = type(donor)()
            copy.CopyFrom(donor)
            value.append(copy)
    elif donor is not None and donor.ByteSize() < 1 << 16:
        copy = type(donor)()
        copy.CopyFrom(donor)
        getattr(message, field.name).CopyFrom(copy)


def _change_list(rng: random.Random, field: Any, value: Any, messages: list[Any]) -> None:
    new = _scalar(rng, field, messages)
    match rng.randrange(4):
        case 0 if len(value):
            del value[rng.randrange(len(value))]
        case 1 if len(value):
            value.append(rng.choice(list(value)))
        case 2 if new is not None:
            value.append(new)
        case _ if len(value) and new is not None:
            value[rng.randrange(len(value))] = new


def _scalar(rng: random.Random, field: Any, messages: list[Any]) -> Any:
    """A value that the field can hold, None if none was drawn."""
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        names = [v for m in messages for f, v in m.ListFields() if f.type == field.TYPE_STRING and isinstance(v, str)]
        text = rng.choice(names) if names and rng.random() < 0.6 else rng.choice(TEXTS)
        return text if field.type == field.TYPE_STRING else rng.choice((text.encode(), rng.randbytes(rng.randrange(64))))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan")))
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return rng.choice((*(v.number for v in field.enum_type.values), 99))
    unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return min(max(rng.choice(NUMBERS), low), high)


def json_mutated(rng: random.Random, text: bytes) -> bytes:
    """A JSON document with values, keys and nesting changed; now and then its text (duplicate keys, NaN, depth)."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return bytes_mutated(rng, text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _tree_mutated(rng, tree)
    out = json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
    match rng.randrange(12):
        case 0:
            return b"[" * 3000 + out + b"]" * 3000
        case 1 if out.startswith(b"{") and len(out) > 2:
            return b"{" + out[1:-1] + b", " + out[1:-1] + b"}"
        case 2:
            return bytes_mutated(rng, out)
        case _:
            return out


def _tree_mutated(rng: random.Random, tree: Any) -> Any:
    """One node of the tree changed."""
    if isinstance(tree, dict) and tree and rng.random() < 0.85:
        key = rng.choice(list(tree))
        if rng.random() < 0.1:
            return {k: v for k, v in tree.items() if k != key}
        if rng.random() < 0.1:
            return {(rng.choice(TEXTS) if k == key else k): v for k, v in tree.items()}
        return {**tree, key: _tree_mutated(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        at = rng.randrange(len(tree))
        if rng.random() < 0.2:
            return tree[:at] + tree[at + 1 :]
        if rng.random() < 0.1:
            return tree + [tree[at]] * rng.choice((1, 40))
        return [*tree[:at], _tree_mutated(rng, tree[at]), *tree[at + 1 :]]
    numbers = (*NUMBERS, 10**30, 0.5, -0.0, float("inf"), float("nan"), 1e308)
    return rng.choice((rng.choice(numbers), rng.choice(numbers), rng.choice(TEXTS), None, True, [], {}, [tree], {"a": tree}, [0, -1]))


def zip_mutated(rng: random.Random, content: bytes, change_json: Change = json_mutated) -> bytes:
    """A zip archive with one member changed (JSON by ``change_json``), or with bytes changed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {n: archive.read(n) for n in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, NotImplementedError):
        return bytes_mutated(rng, content)
    if rng.random() < 0.2 or not members:
        return bytes_mutated(rng, content)
    name = rng.choice(list(members))
    data = members[name]
    members[name] = change_json(rng, data) if data[:1] in {b"{", b"["} else bytes_mutated(rng, data)
    if rng.random() < 0.1:
        members[rng.choice([t for t in TEXTS if t.strip("\x00")])] = members.pop(name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return out.getvalue()


def header_mutated(rng: random.Random, content: bytes, change_json: Change = json_mutated) -> bytes:
    """A safetensors file with its JSON header changed by ``change_json``, and its length right nine times out of ten."""
    if len(content) < 8:
        return bytes_mutated(rng, content)
    (length,) = struct.unpack_from("<Q", content)
    header = change_json(rng, content[8 : 8 + length])
    claimed = len(header) if rng.random() < 0.9 else rng.choice(NUMBERS) % (1 << 64)
    return struct.pack("<Q", claimed) + header + content[8 + length :]
