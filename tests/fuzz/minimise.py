"""Making a finding smaller while it stays the same finding."""

from __future__ import annotations

from collections.abc import Callable

from cases import Case

#: Trials for one finding: each reads a file in the guarded process.
_TRIALS = 150


def smaller(case: Case, same: Callable[[Case], bool]) -> Case:
    """The smallest variant found by leaving out blocks of bytes of every file, then by zeroing them."""
    trials = _TRIALS
    for name in list(case.files):
        block = max(1, len(case.files[name]) // 2)
        while block >= 1 and trials > 0:
            at, shrunk = 0, False
            while at < len(case.files[name]) and trials > 0:
                content = case.files[name]
                candidate = case.with_bytes(content[:at] + content[at + block :], name)
                trials -= 1
                if same(candidate):
                    case, shrunk = candidate, True
                else:
                    at += block
            if not shrunk:
                block //= 4
    return case
