"""Choosing the next token: one more operator after the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.errors import OptionError
from hetsched.graph import AttrValue, DType, Graph, Op, Role, Tensor

METHODS = ("greedy", "top_k", "top_p")
#: Names of the output with the scores, best first.
_SCORES = ("logits",)
_OUTPUT = "next_token"


@dataclass(frozen=True, slots=True)
class AppendSampling:
    """Append a ``Sample`` operator that reads the scores and writes ``next_token``.

    Attributes:
        method: ``greedy`` (the best), ``top_k`` (one of the ``k`` best) or ``top_p`` (one of the best that have probability ``p``).
        temperature: the scores are divided by it before the softmax.
        k, p: of the methods with their names.
    """

    method: str = "greedy"
    temperature: float = 1.0
    k: int = 40
    p: float = 0.95

    name: ClassVar[str] = "append-sampling"
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ("next-token-sampled",)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise OptionError(f"no way of sampling is called {self.method!r}: use one of {', '.join(METHODS)}")
        if not 0.0 < self.temperature <= 100.0 or self.k < 1 or not 0.0 < self.p <= 1.0:
            raise OptionError(f"sampling with temperature {self.temperature:g}, k {self.k} and p {self.p:g} makes no sense")

    def __call__(self, graph: Graph) -> Graph:
        """The graph with ``next_token``: int64, the shape of the scores without their last axis. Unchanged where it has one.

        Raises:
            OptionError: the graph has no scores.
        """
        if _OUTPUT in graph.outputs:
            return graph
        scores = scores_of(graph)
        shape = graph.tensors[scores].shape[:-1]
        token = Tensor(_OUTPUT, shape, DType.I64, Role.OUTPUT)
        name = "sample" if "sample" not in graph.op_index else "sample_next_token"
        op = Op(name, "Sample", (scores,), (_OUTPUT,), self._attributes(), "", (name,))
        tensors = {**graph.tensors, _OUTPUT: token}
        return graph.replace(tensors=tensors, ops=(*graph.ops, op), outputs=(*graph.outputs, _OUTPUT))

    def _attributes(self) -> dict[str, AttrValue]:
        own: dict[str, dict[str, AttrValue]] = {"greedy": {}, "top_k": {"k": self.k}, "top_p": {"p": self.p}}
        return {"method": self.method, "temperature": self.temperature, **own[self.method]}


def scores_of(graph: Graph) -> str:
    """The output with the scores: called ``logits``, or the first that is a float and no state.

    Raises:
        OptionError: there is none.
    """
    floats = [n for n in graph.outputs if graph.tensors[n].dtype.is_float and graph.tensors[n].role is not Role.STATE and "hidden" not in n]
    found = next((n for n in _SCORES if n in floats), None) or next(iter(floats), None)
    if found is None or len(graph.tensors[found].shape) < 2:
        raise OptionError(f"the model {graph.name!r} has no output with scores of tokens: it is no language model with a head")
    return found
