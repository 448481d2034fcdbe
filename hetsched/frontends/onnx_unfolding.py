"""What unfolding the control flow of one model may cost: nodes, bytes, and names that do not grow from level to level.

A body is copied when it is inlined, once for every trip that is unrolled, and written again inside each body around it, with the
names of its tensors put under that of its node. So a small file can stand for any number of bytes, which are counted before they
are made.
"""

from __future__ import annotations

from hetsched.errors import ModelError

#: Nodes of subgraphs that are walked, in all: a loop within loops could unfold without end.
MAX_NODES = 50_000
#: Bytes of the nodes of subgraphs, copied under their new names, and of the bodies that are written, in all.
MAX_BYTES = 1 << 27
#: Longer names of nodes are not put before those of the tensors inside.
_LABEL_LENGTH = 200


class Unfolding:
    """What was spent so far; a trace and all of its children share one."""

    def __init__(self) -> None:
        self._nodes = 0
        self._bytes = 0
        self._labels = 0

    def add_nodes(self, count: int, where: str) -> None:
        """Count nodes that are about to be walked in ``where``.

        Raises:
            ModelError: it were more than :data:`MAX_NODES`.
        """
        self._nodes += count
        if self._nodes > MAX_NODES:
            raise ModelError(f"the control flow at {where!r} unfolds to over {MAX_NODES} nodes: export the model with less of it")

    def add_bytes(self, count: int, where: str) -> None:
        """Count bytes that are about to be made for ``where``.

        Raises:
            ModelError: it were more than :data:`MAX_BYTES`.
        """
        self._bytes += count
        if self._bytes > MAX_BYTES:
            raise ModelError(
                f"the control flow at {where!r} unfolds to over {MAX_BYTES >> 20} MiB without its weights: export the model with less of it"
            )

    def label(self, kind: str, name: str) -> str:
        """What the names inside the node ``name`` of type ``kind`` start with: its name, or a short one of its own (``If~3``)."""
        if len(name) <= _LABEL_LENGTH:
            return name
        self._labels += 1
        return f"{kind}~{self._labels}"
