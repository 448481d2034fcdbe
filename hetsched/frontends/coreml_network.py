"""Classic neural networks of Core ML: the walk over their layers, and the weights that lie in the model file itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import coreml_layers, coreml_layers_nd, coreml_windows
from hetsched.frontends.coreml_features import Feature, bind, read_feature
from hetsched.frontends.coreml_layer_builder import LayerBuilder
from hetsched.frontends.coreml_package import Files
from hetsched.frontends.coreml_schema import LAYERS
from hetsched.frontends.coreml_wire import Message, damaged
from hetsched.graph import Graph, Tensor

LOWERINGS: Mapping[str, Callable[[LayerBuilder, Message], None]] = {
    **coreml_windows.LOWERINGS,
    **coreml_layers.LOWERINGS,
    **coreml_layers_nd.LOWERINGS,
}
_BGR = 30


def graph(model: Message, kind: str, files: Files, digest: str, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The graph of a neural network, classifier or regressor (the field ``kind`` of the model).

    Raises:
        ModelError: the network is damaged.
        UnsupportedModelError: it uses a layer that is not handled; the message names it.
    """
    network, description = model.message(kind), model.message("description")
    exact = network.integer("arrayInputShapeMapping") == 1
    features = [_mapped(read_feature(m), exact) for m in description.messages("input")]
    inputs, bound = bind(features, dims, shapes, files.name)
    layers = list(network.messages("layers"))
    b = LayerBuilder(files.model, inputs, [n for layer in layers for n in layer.texts("output")], exact)
    b.source = files.source
    _preprocess(b, network, description, inputs)
    for index, layer in enumerate(layers):
        _lower(b, layer, index)
    wanted = [m.text("name") for m in description.messages("output")]
    found = [n for n in wanted if n in b.values] or (layers[-1].texts("output") if layers else [])
    outputs: dict[str, None] = {}
    for name in found:
        b.begin(name, "output")
        outputs[b.output(b.value_named(name), name, outputs)] = None
    if not outputs:
        raise damaged("it computes none of its outputs")
    return b.finished(files.name, [t.name for t in inputs], list(outputs), (), {}, digest, bound)


def _mapped(feature: Feature, exact: bool) -> Feature:
    """An input as the layers see it: without the exact mapping ``[channels]`` and ``[channels, height, width]`` become images.

    Raises:
        UnsupportedModelError: it has a sequence axis.
    """
    if exact or feature.is_image or len(feature.shape) == 4:
        return feature
    if len(feature.shape) == 5 and feature.shape[0] == 1:
        return replace(feature, shape=feature.shape[1:], ranges=feature.ranges[1:], choices=tuple(c[1:] for c in feature.choices))
    if len(feature.shape) not in {1, 3}:
        raise UnsupportedModelError(f"the input {feature.name!r} has the shape {list(feature.shape)}, of which the axes are not known")
    tail = (1, 1) if len(feature.shape) == 1 else ()
    rows: tuple[tuple[int, int | None], ...] = ((1, 1), *feature.ranges, *((1, 1) for _ in tail))
    return replace(feature, shape=(1, *feature.shape, *tail), ranges=rows, choices=tuple((1, *c, *tail) for c in feature.choices))


def _preprocess(b: LayerBuilder, network: Message, description: Message, inputs: Collection[Tensor]) -> None:
    """What is done to images before the first layer: a scale, and a bias of each channel."""
    colours = {m.text("name"): m.message("type").message("imageType").integer("colorSpace") for m in description.messages("input")}
    for step in network.messages("preprocessing"):
        name = step.text("featureName") or next((t.name for t in inputs), "")
        b.begin(f"{name}/preprocessing", "preprocessing")
        if step.has("meanImage"):
            raise b.unsupported("a mean image is not supported")
        scaler, x = step.message("scaler"), b.value_named(name)
        channels = b.shape(x)[1] if len(b.shape(x)) == 4 else 0
        biases = [scaler.real(f"{c}Bias") for c in ("red", "green", "blue")]
        biases = biases[::-1] if colours.get(name) == _BGR else biases
        if channels == 1:
            biases = [scaler.real("grayBias")]
        elif channels != 3:
            raise b.bad("it is not of an image")
        scale = scaler.real("channelScale", 1.0) or 1.0
        if scale != 1:
            x = b.emit("Mul", (x, b.number(scale, b.dtype(x))), what="scaled")
        if any(biases):
            x = b.emit("Add", (x, b.constant("bias", np.array(biases, np.float32).reshape(1, -1, 1, 1))), what="shifted")
        b.values[name] = x


def _lower(b: LayerBuilder, layer: Message, index: int) -> None:
    kind = next((LAYERS[n] for n in layer.numbers() if n in LAYERS), "")
    b.turn(layer.text("name") or f"{kind}_{index}", kind, layer.texts("input"), layer.texts("output"))
    lower = LOWERINGS.get(kind)
    if lower is None:
        raise UnsupportedModelError(f"the layer {b.node!r} is a {kind or 'layer of an unknown kind'} of Core ML, which is not supported")
    with b.fitting("parameters"):
        lower(b, layer.message(kind))
