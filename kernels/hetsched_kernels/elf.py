"""Object files of x86-64 linked into one image that runs wherever it is mapped, without a linker and without LLVM.

Only what LLVM emits for position-independent kernels is known: code and constants, relative references, calls of other
kernels' functions and of C functions. Anything else is refused (ELF-64 and the x86-64 psABI say what the numbers mean).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hetsched_kernels.tables import Image

_MAGIC = b"\x7fELF\x02\x01\x01"
_X86_64 = 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _RESERVED = 0, 0xFF00
_LOCAL = 0
_ABSOLUTE, _PC32, _PLT32, _GOT = 1, 2, 4, (9, 41, 42)
#: ``jmp *[rip + rel32]`` and two bytes of padding.
_STUB = b"\xff\x25"
_STUB_BYTES = 8


class UnlinkableError(ValueError):
    """An object file that this linker does not know how to link; the message says why."""


class _Section(NamedTuple):
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    bind: int
    section: int
    value: int


@dataclass(slots=True)
class _Linker:
    """The image in the making; ``places`` are the global symbols' offsets."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[str, int] = field(default_factory=dict)
    inside: list[int] = field(default_factory=list)
    imports: dict[str, list[int]] = field(default_factory=dict)
    slots: dict[str | int, int] = field(default_factory=dict)
    stubs: dict[str, int] = field(default_factory=dict)

    def append(self, data: bytes, alignment: int) -> int:
        """Put bytes at the end; returns where."""
        self.data += bytes(-len(self.data) % max(alignment, 1))
        self.data += data
        return len(self.data) - len(data)

    def slot(self, target: str | int) -> int:
        """A 64-bit word that holds the address of a C function, or of an offset in the image."""
        if target not in self.slots:
            place = self.slots[target] = self.append(bytes(8), 8)
            self.point(place, target, 0)
        return self.slots[target]

    def point(self, place: int, target: str | int, addend: int) -> None:
        """Let the 64-bit word at ``place`` be an address once the image is mapped."""
        if isinstance(target, int):
            struct.pack_into("<q", self.data, place, target + addend)
            self.inside.append(place)
        elif addend:
            raise UnlinkableError(f"an address relative to {target!r}")
        else:
            self.imports.setdefault(target, []).append(place)

    def stub(self, name: str) -> int:
        """A piece of code that jumps to a C function."""
        if name not in self.stubs:
            slot = self.slot(name)
            place = self.stubs[name] = self.append(bytes(_STUB_BYTES), _STUB_BYTES)
            self.data[place : place + 6] = _STUB + struct.pack("<i", slot - place - 6)
        return self.stubs[name]

    def relative(self, place: int, target: int) -> None:
        """Let the 32-bit word at ``place`` be the distance from it to ``target``."""
        if not -(1 << 31) <= target - place < 1 << 31:
            raise UnlinkableError("more than 2 GiB of code")
        struct.pack_into("<i", self.data, place, target - place)


def link(objects: Iterable[bytes]) -> Image:
    """One image of all objects.

    Raises:
        UnlinkableError: an object is for another machine, has variables, defines a symbol again or needs what is not known here.
    """
    linker = _Linker()
    read = [_read(data) for data in objects]
    placed = [_place(linker, sections) for sections, _ in read]
    for (_, symbols), at in zip(read, placed, strict=True):
        for symbol in symbols:
            if symbol.bind != _LOCAL and symbol.section != _UNDEFINED:
                if symbol.name in linker.places or symbol.section not in at:
                    raise UnlinkableError(f"the symbol {symbol.name!r} is defined twice, or is a variable")
                linker.places[symbol.name] = at[symbol.section] + symbol.value
    for (sections, symbols), at in zip(read, placed, strict=True):
        targets = [_target(linker, symbol, at) for symbol in symbols]
        for section in sections:
            if section.kind == _RELA and section.info in at:
                for place, kind, number, addend in _relocations(section.data, at[section.info]):
                    _relocate(linker, place, kind, targets[number], addend)
    imports = {name: tuple(places) for name, places in sorted(linker.imports.items())}
    return Image(bytes(linker.data), dict(linker.places), tuple(linker.inside), imports)


def _read(data: bytes) -> tuple[list[_Section], list[_Symbol]]:
    """The sections and symbols of an object file."""
    if data[:7] != _MAGIC or struct.unpack_from("<HH", data, 16) != (1, _X86_64):
        raise UnlinkableError("not an object file of x86-64")
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = []
    for i in range(count):
        _, kind, flags, _, offset, nbytes, link_, info, alignment, _ = struct.unpack_from("<IIQQQQIIQQ", data, start + i * size)
        sections.append(_Section(kind, flags, b"" if kind == _NOBITS else data[offset : offset + nbytes], link_, info, alignment))
    table = next(s for s in sections if s.kind == _SYMTAB)
    names = sections[table.link].data
    symbols = []
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table.data):
        symbols.append(_Symbol(names[name : names.index(b"\0", name)].decode(), info >> 4, section, value))
    return sections, symbols


def _place(linker: _Linker, sections: list[_Section]) -> dict[int, int]:
    """Put code and constants into the image; where each section went. Constants that hold addresses are writable only while linked."""
    at = {}
    for i, section in enumerate(sections):
        if section.kind == _NOBITS and section.flags & _ALLOC and section.flags & _WRITE:
            raise UnlinkableError("an object file with variables")
        if section.kind == _PROGBITS and section.flags & _ALLOC:
            at[i] = linker.append(section.data, section.alignment)
    return at


def _target(linker: _Linker, symbol: _Symbol, at: Mapping[int, int]) -> str | int | None:
    """What a symbol stands for: an offset in the image, or the name of a C function. None: nothing that code may use."""
    if symbol.section == _UNDEFINED:
        return linker.places.get(symbol.name, symbol.name or None)
    if symbol.section >= _RESERVED or symbol.section not in at:
        return None
    return at[symbol.section] + symbol.value


def _relocations(data: bytes, start: int) -> Iterator[tuple[int, int, int, int]]:
    for offset, info, addend in struct.iter_unpack("<QQq", data):
        yield start + offset, info & 0xFFFFFFFF, info >> 32, addend


def _relocate(linker: _Linker, place: int, kind: int, target: str | int | None, addend: int) -> None:
    if target is None:
        raise UnlinkableError("a reference to a variable")
    if kind == _ABSOLUTE:
        linker.point(place, target, addend)
    elif kind in _GOT:
        linker.relative(place, linker.slot(target) + addend)
    elif kind in (_PC32, _PLT32):
        linker.relative(place, (linker.stub(target) if isinstance(target, str) else target) + addend)
    else:
        raise UnlinkableError(f"relocations of kind {kind}")
