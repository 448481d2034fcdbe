"""How much accuracy each op loses in integers: the user's own figures, for plans of mixed precision within a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.partition.limits import Limits

LARGEST_FILE = 64 << 20
#: Precisions that lose nothing.
FLOATS = frozenset({"f32", "f16", "bf16"})
Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Sensitivities(BaseModel):
    """Accuracy lost per op, in the user's own unit (points of accuracy, a rise of the perplexity, noise power): losses add up.

    ``ops``: a node or op name -> what it loses in any integer precision, or precision -> loss. ``default``: ops not named.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    ops: dict[str, Loss | dict[str, Loss]]
    default: Loss = 0.0

    def of(self, name: str, precision: str) -> float | None:
        """What a node loses at a precision; None: the file does not say."""
        found = self.ops.get(name)
        return found.get(precision) if isinstance(found, Mapping) else found


def read_sensitivities(path: Path) -> Sensitivities:
    """Read a JSON file of sensitivities.

    Raises:
        OptionError: absent, too large, not JSON, or not of this form.
    """
    if not path.is_file():
        raise OptionError(f"there is no file of sensitivities {path}")
    if path.stat().st_size > LARGEST_FILE:
        raise OptionError(f"the sensitivities {path} are larger than {LARGEST_FILE >> 20} MiB: give one number a node")
    try:
        return Sensitivities.model_validate_json(path.read_bytes())
    except ValidationError as e:
        where = ".".join(str(p) for p in e.errors()[0]["loc"][:2]) or "the top level"
        raise OptionError(
            f"the sensitivities {path} are not valid at {where}: write "
            '{"ops": {"node": 0.01, "other": {"w8a8": 0.02}}} with numbers from 0 up'
        ) from e


def with_sensitivities(table: CostTable, graph: Graph, path: str | Path | None, limits: Limits | None) -> CostTable:
    """The table with the losses of a file, if one is given.

    Raises:
        OptionError: accuracy is limited and no file says what it loses, or the file is of no use.
    """
    if path is None:
        if limits is not None and limits.loss is not None:
            raise OptionError("a limit on the accuracy loss needs --sensitivities: a file that says what each op loses in integers")
        return table
    return with_losses(table, graph, read_sensitivities(Path(path)), Path(path))


def with_losses(table: CostTable, graph: Graph, found: Sensitivities, path: Path) -> CostTable:
    """The table with what each alternative loses: the sum over the user's nodes that its op stands for.

    What a node loses is shared out evenly over the ops that it became (the parts of a split operator, say).

    Raises:
        OptionError: a name that is no node and no op of the graph.
    """
    known = dict.fromkeys(name for op in graph.ops for name in (op.name, *op.origin))
    for name in found.ops:
        if name not in known:
            near = get_close_matches(name, known, 3)
            hint = f": did you mean {', '.join(near)}?" if near else ""
            raise OptionError(f"the sensitivities {path} name {name!r}, which is no node of {graph.name!r}{hint}")
    shared = Counter(n for op in graph.ops for n in dict.fromkeys((op.name, *op.origin)))
    loss = np.zeros(len(table.alt_queue))
    for i, op in enumerate(graph.ops):
        for a in table.alternatives(i):
            precision = table.alt_precision[a]
            if precision not in FLOATS:
                names = dict.fromkeys((op.name, *op.origin))
                given = [x / shared[n] for n in names if (x := found.of(n, precision)) is not None]
                loss[a] = sum(given) if given else found.default / max(shared[n] for n in names)
    return replace(table, loss=loss)
