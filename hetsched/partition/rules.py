"""``rules``: a table from operator type to processors, the engineer's habit (``rules:<file.yaml>`` for one's own)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsched import plain_yaml
from hetsched.errors import OptionError
from hetsched.partition.orders import file_order
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import best_on_queue, settle
from hetsched.partition.timing import Costs

DEFAULT = Path(__file__).with_name("rules.yaml")
MAX_BYTES = 1 << 20


def read_rules(path: Path) -> dict[str, tuple[str, ...]]:
    """Read an affinity table: a YAML mapping from op type (``"*"`` for the rest) to processor kinds or queue names.

    Raises:
        OptionError: the file is absent, too large, not YAML, or not such a mapping.
    """
    if not path.is_file():
        raise OptionError(f"there is no affinity table {path}")
    if path.stat().st_size > MAX_BYTES:
        raise OptionError(f"the affinity table {path} is larger than 1 MiB: it is not one")
    try:
        raw: Any = plain_yaml.load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as e:
        raise OptionError(f"the affinity table {path} is not UTF-8 text: save it as such") from e
    except ValueError as e:
        raise OptionError(f"the affinity table {path} {e}") from e
    if not isinstance(raw, dict):
        raise OptionError(f"the affinity table {path} must map op types to lists of processors")
    for key, value in raw.items():
        if not isinstance(key, str) or not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise OptionError(f"the affinity table {path} must map {key!r} to a list of processor kinds or queue names, not {value!r}")
    return {key: tuple(value) for key, value in raw.items()}


@dataclass(frozen=True)
class Rules:
    """Each op goes to the first processor in its type's list that supports it; else to the first queue that does.

    ``path`` names a YAML table; empty: the problem's own ``affinity``, or the table that ships with hetsched.
    """

    path: str = ""

    def table(self, problem: Problem) -> Mapping[str, tuple[str, ...]]:
        """The affinity table in force."""
        if self.path:
            return read_rules(Path(self.path))
        return problem.affinity if problem.affinity is not None else read_rules(DEFAULT)

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op by its type.

        Raises:
            OptionError: the problem does not say the ops' types, or the table cannot be read.
        """
        if len(problem.op_types) != len(problem.table.op_names):
            raise OptionError("the solver 'rules' needs the ops' types: make the problem with Problem.of(graph, table)")
        rules, c, queues = self.table(problem), Costs(problem.table), problem.table.queues
        chosen: list[int] = []
        for op, kind in enumerate(problem.op_types):
            there = sorted({c.queue[a] for a in c.alts[op]})
            wanted = rules.get(kind, rules.get("*", ()))
            hits = (q for name in wanted for q in there if name in (queues[q].kind, queues[q].name))
            chosen.append(next(hits, there[0]))
        return settle(problem, c, "rules", [(file_order(c), best_on_queue(problem, c, chosen))])
