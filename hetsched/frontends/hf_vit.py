"""Vision Transformer classifiers from their configurations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.errors import ModelError
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_fields import MAX_LAYERS
from hetsched.frontends.hf_files import Folder
from hetsched.frontends.hf_layers import Layers, bound, prefixed
from hetsched.graph import Graph

#: Roles of a layer in the checkpoints' older and newer spelling.
_LAYER = "{encoder.layer|layers}"
_Q, _K, _V = ("{attention.attention.%s|attention.%s_proj}" % names for names in (("query", "q"), ("key", "k"), ("value", "v")))  # noqa: UP031
_O, _UP, _DOWN = "{attention.output.dense|attention.o_proj}", "{intermediate.dense|mlp.fc1}", "{output.dense|mlp.fc2}"


def vit_graph(folder: Folder, dims: Mapping[str, int]) -> Graph:
    """The classifier for ``batch`` (1) images: ``pixel_values [batch, channels, size, size]`` to ``logits`` or hidden states.

    Raises:
        ModelError: the configuration and the weights do not fit together.
        OptionError: a dim is unknown or out of range.
    """
    c = folder.config
    at = bound(dims, {"batch": (1, 1 << 16)}, folder.name)
    b = GraphBuilder(folder.name)
    layers = Layers(b, folder.weights(prefixed("vit.", "")), at["batch"], c.positive("layer_norm_eps", default=1e-12))
    x = _embedded(layers, folder)
    heads, inner = c.size("num_attention_heads"), c.size("intermediate_size")
    if b.shape(x)[-1] % heads:
        raise ModelError(f"{c.where} has {heads} heads for {b.shape(x)[-1]} elements: it is damaged")
    for i in range(c.size("num_hidden_layers", most=MAX_LAYERS)):
        base, name = f"{_LAYER}.{i}", f"layers.{i}"
        roles = (f"{base}.{_Q}", f"{base}.{_K}", f"{base}.{_V}", f"{base}.{_O}")
        y = layers.self_attention(f"{name}.attention", layers.norm(f"{base}.layernorm_before", x), roles, heads)
        x = layers.add(f"{name}.residual_attention", x, y)
        y = layers.norm(f"{base}.layernorm_after", x)
        y = layers.mlp(name, y, (f"{base}.{_UP}", f"{base}.{_DOWN}"), inner, c.text("hidden_act", "gelu"))
        x = layers.add(f"{name}.residual_ffn", x, y)
    _output(layers, folder, layers.norm("layernorm", x))
    return b.graph(folder.path, folder.sha256, at)


def _embedded(layers: Layers, folder: Folder) -> str:
    """Patches, class token and positions as rows ``[batch · (patches + 1), hidden]``."""
    b, c, batch = layers.builder, folder.config, layers.batch
    size, patch, hidden = c.size("image_size", most=1 << 14), c.size("patch_size", most=1 << 14), c.size("hidden_size")
    channels, side = c.size("num_channels", default=3, most=1 << 12), c.size("image_size") // c.size("patch_size")
    pixels = b.input("pixel_values", (batch, channels, size, size))
    base = "embeddings.patch_embeddings.projection"
    kernel = layers.weights.get(f"{base}.weight", hidden, channels, patch, patch)
    inputs = [pixels, b.weight(kernel), b.weight(layers.weights.get(f"{base}.bias", hidden))]
    pair = (patch, patch)
    x = b.emit("Conv", "patch_embeddings", inputs, (batch, hidden, side, side), kernel_shape=pair, strides=pair)
    x = b.reshape("patches", x, (batch, hidden, side * side))
    x = b.emit("Transpose", "patches_last", [x], (batch, side * side, hidden), perm=(0, 2, 1))
    token = b.weight(layers.weights.get("embeddings.cls_token", 1, 1, hidden))
    if batch > 1:
        token = b.emit("Expand", "class_tokens", [token, b.array("class_tokens.shape", np.asarray((batch, 1, hidden)))], (batch, 1, hidden))
    count = side * side + 1
    x = b.emit("Concat", "with_class_token", [token, x], (batch, count, hidden), axis=1)
    table = b.weight(layers.weights.get("embeddings.position_embeddings", 1, count, hidden))
    x = b.binary("Add", "with_positions", x, table)
    return b.reshape("rows", x, (batch * count, hidden))


def _output(layers: Layers, folder: Folder, x: str) -> None:
    b, batch = layers.builder, layers.batch
    rows, hidden = b.shape(x)
    head = next((t for n, t in (folder.tensors or {}).items() if n == "classifier.weight"), None)
    if head is None or len(head.shape) != 2:
        wanted = b.array("last_hidden_state.shape", np.asarray((batch, rows // batch, hidden), np.int64))
        b.output(b.emit("Reshape", "last_hidden_state", [x, wanted], (batch, rows // batch, hidden)))
        return
    first = b.array("first_rows", (np.arange(batch) * (rows // batch)).astype(np.int64))
    y = b.emit("Gather", "class_token", [x, first], (batch, hidden), axis=0)
    b.output(layers.linear("classifier", y, head.shape[0]))
