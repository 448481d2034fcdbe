"""What governors did, moment by moment, as many moments as a trace should hold."""

from __future__ import annotations

from hetsched.trace import Instant

LIMIT = 1000


class Instants:
    """Instants of a run: of more than :data:`LIMIT`, every second, fourth, ... one."""

    def __init__(self) -> None:
        self.kept: list[Instant] = []
        self.seen = 0
        self._stride = 1

    def note(self, kind: str, name: str, now_s: float, detail: str) -> None:
        """Something happened now."""
        if self.seen % self._stride == 0:
            self.kept.append(Instant(kind, name, now_s, detail))
            if len(self.kept) > LIMIT:
                self.kept = self.kept[::2]
                self._stride *= 2
        self.seen += 1

    @property
    def left_out(self) -> int:
        """How many are not kept."""
        return self.seen - len(self.kept)
