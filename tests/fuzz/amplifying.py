"""Hostile files whose content multiplies when it is read: names, attributes and bodies that nesting, unrolling and inlining repeat.

Each is under 1 MB, so it may take 1 GB at most. The tables are as in :mod:`hostile`.
"""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import Case

if TYPE_CHECKING:
    import onnx

_PROGRAM = Path(__file__).parents[1] / "frontends" / "data" / "torch" / "cnn.pt2"


def _onnx(nodes: Sequence[onnx.NodeProto], functions: Sequence[onnx.FunctionProto] = (), output: str = "y", source: str = "x") -> Case:
    """A model with the input ``source`` (float[2]) and the unknown condition ``c``."""
    from onnx import helper

    ends = [helper.make_tensor_value_info(source, 1, [2]), helper.make_tensor_value_info("c", 9, [])]
    graph = helper.make_graph(list(nodes), "g", ends, [helper.make_tensor_value_info(output, 1, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=list(functions), opset_imports=opsets, ir_version=9)
    return Case("m.onnx", {"m.onnx": model.SerializeToString()})


def _chain(count: int, first: str, name: str = "", op: str = "Relu") -> list[onnx.NodeProto]:
    """Operators one after the other; the names of the last ones are ``t{count - 1}``."""
    from onnx import helper

    return [helper.make_node(op, [first if k == 0 else f"t{k - 1}"], [f"t{k}"], f"{name}{k}") for k in range(count)]


def _branch(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    from onnx import helper

    return helper.make_graph(list(nodes), "b", [], [helper.make_tensor_value_info(output, 1, [2])])


def nested_names(levels: int, length: int, operators: int) -> Case:
    """``If`` in ``If``, each with a long name, around a chain of operators."""
    from onnx import helper

    nodes, output = _chain(operators, "x"), f"t{operators - 1}"
    for level in range(levels):
        other = _branch([helper.make_node("Neg", ["x"], [f"n{level}"])], f"n{level}")
        name = f"{level}" + "n" * length
        nodes = [helper.make_node("If", ["c"], [f"y{level}"], name, then_branch=_branch(nodes, output), else_branch=other)]
        output = f"y{level}"
    return _onnx(nodes, output=output)


def captured_name(levels: int, length: int, reads: int) -> Case:
    """A short name that a body reads often and that stands for a long one outside."""
    from onnx import helper

    long = "v" * length
    body_nodes = [helper.make_node("Identity", ["k"], ["k2"]), helper.make_node("Sum", ["v"] * reads, ["w"])]
    for level in range(levels):
        inner = _branch(body_nodes[1:], "w")
        other = _branch([helper.make_node("Neg", ["v"], [f"n{level}"])], f"n{level}")
        body_nodes = [body_nodes[0], helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=other)]
    vector = [helper.make_tensor_value_info(n, 1, [2]) for n in ("v", "w")]
    flags = [helper.make_tensor_value_info(n, 9, []) for n in ("k", "k2")]
    body = helper.make_graph(body_nodes, "b", [helper.make_tensor_value_info("i", 7, []), flags[0], vector[0]], [flags[1], vector[1]])
    trips = helper.make_node("Constant", [], ["n"], value_int=16)
    going = helper.make_node("Constant", [], ["go"], value=helper.make_tensor("v", 9, [], [True]))
    return _onnx([trips, going, helper.make_node("Loop", ["n", "go", long], ["y"], "loop", body=body)], source=long)


def unrolled(depth: int, length: int, operators: int, attribute: int = 0, loops: int = 1) -> Case:
    """Loops of 16 trips in one another, with long names, or around one operator with a large attribute."""
    from onnx import helper

    nodes = _chain(operators, "v")
    if attribute:
        nodes[-1].attribute.append(helper.make_attribute("note", "a" * attribute))
    output = f"t{operators - 1}"
    constants = [
        helper.make_node("Constant", [], ["n"], value_int=16),
        helper.make_node("Constant", [], ["go"], value=helper.make_tensor("v", 9, [], [True])),
    ]
    for level in range(depth):
        vector = [helper.make_tensor_value_info(n, 1, [2]) for n in ("v", output)]
        flags = [helper.make_tensor_value_info(n, 9, []) for n in ("k", "k2")]
        counter = helper.make_tensor_value_info("i", 7, [])
        body = helper.make_graph(
            [helper.make_node("Identity", ["k"], ["k2"]), *nodes], "b", [counter, flags[0], vector[0]], [flags[1], vector[1]]
        )
        name, source = f"{level}" + "l" * length, "x" if level == depth - 1 else "v"
        output = f"y{level}"
        nodes = [helper.make_node("Loop", ["n", "go", source], [output], name, body=body)]
    for k in range(loops - 1):  # the same loop again, of its own result
        nodes.append(helper.make_node("Loop", ["n", "go", output], [f"z{k}"], f"{k}{name}", body=body))
        output = f"z{k}"
    return _onnx([*constants, *nodes], output=output)


def _function(name: str, nodes: Sequence[onnx.NodeProto], output: str, attributes: Sequence[str] = ()) -> onnx.FunctionProto:
    from onnx import helper

    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], [output], list(nodes), opsets, list(attributes))


def _calls(count: int, source: str = "x", **attributes: Any) -> list[onnx.NodeProto]:
    from onnx import helper

    return [helper.make_node("f", [source], [f"y{k}"], domain="own", **attributes) for k in range(count)]


def function_with_attribute(calls: int, length: int) -> Case:
    """A function with one large attribute, called often."""
    from onnx import helper

    node = helper.make_node("Relu", ["a"], ["b"], note="a" * length)
    return _onnx(_calls(calls), [_function("f", [node], "b")], f"y{calls - 1}")


def function_of_long_argument(reads: int, length: int, calls: int) -> Case:
    """A function that reads its argument often, called with a long name."""
    from onnx import helper

    node = helper.make_node("Sum", ["a"] * reads, ["b"])
    return _onnx(_calls(calls, "v" * length), [_function("f", [node], "b")], f"y{calls - 1}", source="v" * length)


def function_of_large_attribute(uses: int, length: int) -> Case:
    """A function of which every node takes the attribute of the call."""
    from onnx import AttributeProto

    nodes = _chain(uses, "a")
    for node in nodes:
        node.attribute.append(AttributeProto(name="note", type=AttributeProto.STRING, ref_attr_name="note"))
    return _onnx(_calls(1, note="a" * length), [_function("f", nodes, f"t{uses - 1}", ["note"])], "y0")


def functions_of_functions(levels: int, length: int) -> Case:
    """Each function calls the next one four times; the last has a large attribute."""
    from onnx import helper

    functions = [_function(f"f{levels}", [helper.make_node("Relu", ["a"], ["b"], note="a" * length)], "b")]
    for level in range(levels):
        calls = [helper.make_node(f"f{level + 1}", ["a"], [f"b{k}"], domain="own") for k in range(4)]
        functions.append(_function("f" if level == 0 else f"f{level}", calls, "b3"))
    return _onnx(_calls(1), functions, "y0")


def _pt2(
    edit: Callable[[dict[str, Any]], None] | None = None, text: Callable[[str], str] = str, compression: int = zipfile.ZIP_STORED,
    noise: int = 0,
) -> Case:  # fmt: skip
    """The program of another test, with its description changed and ``noise`` bytes that do not shrink beside it."""
    out = io.BytesIO()
    with zipfile.ZipFile(_PROGRAM) as archive, zipfile.ZipFile(out, "w", compression) as changed:
        for name in (n for n in archive.namelist() if "/weights/" not in n):
            content = archive.read(name)
            if name.endswith(".json") and "models/" in name:
                program = json.loads(content)
                if edit is not None:
                    edit(program)
                content = text(json.dumps(program)).encode()
            changed.writestr(name, content)
        changed.writestr("noise", random.Random(0).randbytes(noise))
    return Case("m.pt2", {"m.pt2": out.getvalue()})


def nested_programs(levels: int, length: int, parts: int, noise: int = 0) -> Case:
    """Programs in one another under long names, around many values."""

    def edit(program: dict[str, Any]) -> None:
        graph = program["graph_module"]["graph"]
        value = next(iter(graph["tensor_values"].values()))
        nodes = [
            {"target": "torch.ops.aten.relu.default", "inputs": [], "outputs": [{"as_tensor": {"name": f"v{k}"}}], "metadata": {}}
            for k in range(parts)
        ]
        inner: dict[str, Any] = {"inputs": [], "outputs": [], "nodes": nodes, "tensor_values": {f"v{k}": value for k in range(parts)}}
        for level in range(levels):
            node = {
                "target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "name": f"{level}" + "n" * length, "outputs": [],
                "inputs": [{"name": "g", "arg": {"as_graph": {"name": "g", "graph": inner}}}], "metadata": {},
            }  # fmt: skip
            inner = {"inputs": [], "outputs": [], "nodes": [node], "tensor_values": {}}
        graph["nodes"] = inner["nodes"] + graph["nodes"]

    return _pt2(edit, compression=zipfile.ZIP_DEFLATED if noise else zipfile.ZIP_STORED, noise=noise)


def json_bomb(part: str, size: int, noise: int) -> Case:
    """A description of ``size`` bytes of small values, which shrink to nothing."""
    parts = ",".join([part] * (size // (len(part) + 1)))
    return _pt2(text=lambda t: f'{t[:-1]}, "x": [{parts}]}}', compression=zipfile.ZIP_DEFLATED, noise=noise)


def expression(text: str) -> Case:
    """A size that is computed by an expression."""

    def edit(program: dict[str, Any]) -> None:
        for meta in program["graph_module"]["graph"]["tensor_values"].values():
            meta["sizes"][:1] = [{"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}]

    return _pt2(edit)


_REFUSED = "at most|more than|over|damaged"
AMPLIFYING: dict[str, tuple[Callable[[], Case], str | None]] = {
    "onnx:nested branches of long names": (lambda: nested_names(12, 15_000, 300), _REFUSED),
    "onnx:nested branches of allowed names": (lambda: nested_names(12, 4000, 4000), None),
    "onnx:capture of a long name": (lambda: captured_name(1, 100_000, 100_000), _REFUSED),
    "onnx:capture of an allowed name": (lambda: captured_name(1, 4000, 200_000), _REFUSED),
    "onnx:capture through five levels": (lambda: captured_name(5, 4000, 200_000), _REFUSED),
    "onnx:unrolled long names": (lambda: unrolled(1, 120_000, 28, loops=6), _REFUSED),
    "onnx:unrolled allowed names": (lambda: unrolled(1, 4000, 28, loops=15), None),
    "onnx:unrolled large attribute": (lambda: unrolled(1, 1, 1, 80_000, loops=12), None),
    "onnx:function with a large attribute": (lambda: function_with_attribute(5000, 300_000), _REFUSED),
    "onnx:function of a long argument": (lambda: function_of_long_argument(100_000, 4000, 10), _REFUSED),
    "onnx:function of an attribute": (lambda: function_of_large_attribute(5000, 500_000), _REFUSED),
    "onnx:functions of functions": (lambda: functions_of_functions(8, 500_000), _REFUSED),
    "pt2:nested programs of long names": (lambda: nested_programs(15, 30_000, 900), _REFUSED),
    "pt2:nested programs of allowed names": (lambda: nested_programs(15, 4000, 2000), None),
    "pt2:nested programs of many values": (lambda: nested_programs(15, 60, 20_000, 150_000), "in line"),
    "pt2:bomb of objects": (lambda: json_bomb("{}", 28_000_000, 850_000), _REFUSED),
    "pt2:bomb of small objects": (lambda: json_bomb('{"":0}', 28_000_000, 850_000), _REFUSED),
    "pt2:bomb of texts": (lambda: json_bomb('"éa"', 20_000_000, 850_000), _REFUSED),
    "pt2:bomb of another size": (lambda: json_bomb("{}", 48_000_000, 200_000), _REFUSED),
    "pt2:too few arguments": (lambda: expression("Mod(5)"), "which has no value"),
    "pt2:too few branches": (lambda: expression("Where(1)"), "which has no value"),
    "pt2:a ratio of one": (lambda: expression("Rational(1)"), "which has no value"),
}
