"""Where the slots of a segment lie in device memory: constants and crossing tensors side by side, the others where they fit in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hetsched.runtime.delegates.wgpu.program import Dispatch, Slot

#: WebGPU's largest default alignment of a bound buffer.
ALIGNMENT = 256


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def side_by_side(slots: Iterable[Slot]) -> int:
    """Give every slot its own bytes; returns the size of all."""
    at = 0
    for slot in slots:
        slot.offset = at
        at += _aligned(slot.nbytes)
    return at


def lifetimes(dispatches: Sequence[Dispatch]) -> dict[Slot, tuple[int, int]]:
    """First and last dispatch that uses each slot of the arena, in order of first use."""
    out: dict[Slot, tuple[int, int]] = {}
    for i, dispatch in enumerate(dispatches):
        for slot in dispatch.bindings:
            if slot.pool == "arena":
                out[slot] = (out.get(slot, (i, i))[0], i)
    return out


def arrange(lives: dict[Slot, tuple[int, int]]) -> int:
    """Place slots so that those that live at the same time do not overlap, the largest first, each as low as it fits.

    Returns:
        The size of the arena in bytes.
    """
    placed: list[Slot] = []
    for slot in sorted(lives, key=lambda s: -s.nbytes):
        first, last = lives[slot]
        busy = sorted((p.offset, p.offset + _aligned(p.nbytes)) for p in placed if lives[p][0] <= last and first <= lives[p][1])
        at = 0
        for begin, end in busy:
            if at + slot.nbytes <= begin:
                break
            at = max(at, end)
        slot.offset = at
        placed.append(slot)
    return max((s.offset + _aligned(s.nbytes) for s in placed), default=0)
