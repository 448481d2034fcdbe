"""The structural hash: the same for one network however it is spelled, another for another network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hetsched.app import load
from hetsched.graph_hash import graph_hash

CORPUS = Path(__file__).parent.parent.parent / "shared" / "models"


def net(
    *, size: int = 16, channels: int = 8, prefix: str = "", seed: int = 0, dtype: int = TensorProto.FLOAT, normalise: bool = False,
    mean: bool = False, swap: bool = False, kernel_attr: bool = True, relu: str = "Relu", depth: int = 2,
) -> onnx.ModelProto:  # fmt: skip
    """Convolutions with a skip, a pool and a classifier, in many spellings."""
    rng, kind = np.random.default_rng(seed), np.float32 if dtype == TensorProto.FLOAT else np.float16
    weights, nodes = [], []

    def weight(name: str, *shape: int) -> str:
        weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(kind), prefix + name))
        return prefix + name

    here = "x"
    if normalise:
        nodes.append(helper.make_node("Sub", [here, weight("mean", 1, 3, 1, 1)], [prefix + "n0"], prefix + "sub"))
        nodes.append(helper.make_node("Div", [prefix + "n0", weight("std", 1, 3, 1, 1)], [prefix + "n1"], prefix + "div"))
        here = prefix + "n1"
    for k in range(depth):
        attrs = {"pads": [1, 1, 1, 1]} | ({"kernel_shape": [3, 3], "strides": [1, 1], "group": 1} if kernel_attr else {})
        name, source = f"{prefix}c{k}", here
        nodes.append(
            helper.make_node("Conv", [here, weight(f"w{k}", channels, 3 if k == 0 else channels, 3, 3)], [name], f"{name}/Conv", **attrs)
        )
        nodes.append(helper.make_node(relu, [name], [name + "r"], name + "/act"))
        here = name + "r"
        if k:
            nodes.append(helper.make_node("Add", [here, source] if swap else [source, here], [name + "s"], name + "/add"))
            here = name + "s"
    if mean:
        nodes.append(helper.make_node("ReduceMean", [here], [prefix + "p"], prefix + "pool", axes=[2, 3], keepdims=0))
        here = prefix + "p"
    else:
        nodes.append(helper.make_node("GlobalAveragePool", [here], [prefix + "p"], prefix + "pool"))
        nodes.append(helper.make_node("Flatten", [prefix + "p"], [prefix + "f"], prefix + "flat"))
        here = prefix + "f"
    nodes.append(helper.make_node("Gemm", [here, weight("fc", 10, channels), weight("fcb", 10)], ["y"], prefix + "fc", transB=1))
    graph = helper.make_graph(
        nodes, prefix + "net", [helper.make_tensor_value_info("x", dtype, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", dtype, [1, 10])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def hash_of(model: onnx.ModelProto, tmp_path: Path, name: str = "m.onnx") -> str:
    path = tmp_path / name
    path.write_bytes(model.SerializeToString())
    return graph_hash(load(path))


@pytest.mark.parametrize(
    "spelling",
    [
        {"prefix": "features/"}, {"seed": 9}, {"normalise": True}, {"mean": True}, {"swap": True}, {"kernel_attr": False},
        {"dtype": TensorProto.FLOAT16}, {"prefix": "a.", "normalise": True, "mean": True, "swap": True, "seed": 3},
    ],
    ids=str,
)  # fmt: skip
def test_the_same_network_in_another_spelling(spelling: dict[str, object], tmp_path: Path) -> None:
    assert hash_of(net(**spelling), tmp_path, "renamed.onnx") == hash_of(net(), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"size": 24}, {"channels": 16}, {"depth": 3}, {"relu": "Sigmoid"}], ids=str)
def test_another_network(change: dict[str, object], tmp_path: Path) -> None:
    assert hash_of(net(**change), tmp_path) != hash_of(net(), tmp_path)  # type: ignore[arg-type]


def test_the_hash_does_not_depend_on_the_order_of_independent_branches(tmp_path: Path) -> None:
    def branches(first: str, second: str) -> onnx.ModelProto:
        made = {
            "a": helper.make_node("Sigmoid", ["x"], ["a"], "a"),
            "b": helper.make_node("Tanh", ["x"], ["b"], "b"),
        }
        nodes = [made[first], made[second], helper.make_node("Mul", ["a", "b"], ["y"], "y")]
        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 4]) for n in ("x", "y")]
        return helper.make_model(
            helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
        )

    assert hash_of(branches("a", "b"), tmp_path) == hash_of(branches("b", "a"), tmp_path)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50", "squeezenet1_1", "efficientnet_b0"])
def test_two_exports_of_a_public_network_are_one(name: str) -> None:
    files = [CORPUS / folder / f"{name}.onnx" for folder in ("aihub", "graphs")]
    if not all(f.is_file() for f in files):
        pytest.skip("the shared corpus of models is absent")
    assert graph_hash(load(files[0])) == graph_hash(load(files[1]))
