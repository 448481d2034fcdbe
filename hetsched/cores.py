"""Names of queues that are some cores of a processor: ``cpu:0-3``, ``cpu:0,2``."""

from __future__ import annotations

import re

from hetsched.errors import SoCError

#: No queue has more cores; a longer list is a slip or an attack.
MAX_CORES = 1024
_CORE_LIST = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*")


def cores_of(target: str) -> tuple[int, ...]:
    """Core numbers that a queue target such as ``cpu:2-4,7`` names, ascending; empty if it names a whole processor.

    Raises:
        SoCError: what follows the colon is not a list of cores, a range runs backwards, or it names more than
            :data:`MAX_CORES` cores.

    Examples:
        >>> cores_of("cpu:2-4,7")
        (2, 3, 4, 7)
        >>> cores_of("npu")
        ()
    """
    _, colon, text = target.partition(":")
    if not colon:
        return ()
    if not _CORE_LIST.fullmatch(text):
        raise SoCError(f"the queue {target[:80]!r} does not name cores: write it as 'cpu:0-3' or 'cpu:0,2'")
    ends = [part.partition("-") for part in text.split(",")]
    ranges = [(int(first), int(last or first)) for first, _, last in ends]
    if any(first > last for first, last in ranges):
        raise SoCError(f"the queue {target[:80]!r} has a range of cores that runs backwards: write the lower core first")
    if sum(last - first + 1 for first, last in ranges) > MAX_CORES:
        raise SoCError(f"the queue {target[:80]!r} names more than {MAX_CORES} cores: no queue has that many")
    return tuple(sorted({core for first, last in ranges for core in range(first, last + 1)}))
