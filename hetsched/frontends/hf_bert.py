"""BERT, RoBERTa and DistilBERT encoders from their configurations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.errors import ModelError
from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.frontends.decoder_fields import MAX_LAYERS
from hetsched.frontends.hf_files import Folder
from hetsched.frontends.hf_layers import Layers, bound, prefixed
from hetsched.graph import DType, Graph

_BERT = {
    "layer": "encoder.layer", "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "o": "attention.output.dense", "norm1": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense",
    "norm2": "output.LayerNorm",
}  # fmt: skip
_DISTIL = {
    "layer": "transformer.layer", "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin", "o": "attention.out_lin",
    "norm1": "sa_layer_norm", "up": "ffn.lin1", "down": "ffn.lin2", "norm2": "output_layer_norm",
}  # fmt: skip


def bert_graph(folder: Folder, dims: Mapping[str, int]) -> Graph:
    """The encoder with ``batch`` (1) sequences of ``tokens`` (128).

    Inputs ``input_ids``, ``attention_mask`` and, where the model has types, ``token_type_ids``, all ``[batch, tokens]`` int64;
    outputs ``last_hidden_state`` and, where the checkpoint has a pooler, ``pooler_output``.

    Raises:
        ModelError: the configuration and the weights do not fit together.
        OptionError: a dim is unknown or out of range.
    """
    c = folder.config
    positions = c.size("max_position_embeddings", default=512)
    offset = c.size("pad_token_id", default=1, least=0) + 1 if "roberta" in c.text("model_type", "") else 0
    at = bound(dims, {"batch": (1, 1 << 16), "tokens": (min(128, max(positions - offset, 1)), max(positions - offset, 1))}, folder.name)
    b = GraphBuilder(folder.name)
    weights = folder.weights(prefixed("", "bert.", "roberta.", "distilbert."))
    layers = Layers(b, weights, at["batch"], c.positive("layer_norm_eps", default=1e-12))
    names = _DISTIL if c.text("model_type", "") == "distilbert" else _BERT
    ids = b.input("input_ids", (at["batch"], at["tokens"]), DType.I64)
    mask = _mask(b, b.input("attention_mask", (at["batch"], at["tokens"]), DType.I64))
    x = _embedded(layers, folder, ids, offset)
    inner, heads = c.size("intermediate_size", "hidden_dim"), c.size("num_attention_heads", "n_heads")
    if b.shape(x)[-1] % heads:
        raise ModelError(f"{c.where} has {heads} heads for {b.shape(x)[-1]} elements: it is damaged")
    for i in range(c.size("num_hidden_layers", "n_layers", most=MAX_LAYERS)):
        base = f"{names['layer']}.{i}"
        part = {k: f"{base}.{v}" for k, v in names.items()}
        y = layers.self_attention(f"{base}.attention", x, (part["q"], part["k"], part["v"], part["o"]), heads, mask)
        x = layers.norm(part["norm1"], layers.add(f"{base}.residual_attention", x, y))
        y = layers.mlp(base, x, (part["up"], part["down"]), inner, c.text("hidden_act", c.text("activation", "gelu")))
        x = layers.norm(part["norm2"], layers.add(f"{base}.residual_ffn", x, y))
    _outputs(layers, x, at["tokens"])
    return b.graph(folder.path, folder.sha256, at)


def _mask(b: GraphBuilder, attention_mask: str) -> str:
    """0 where attention is allowed and the lowest float32 elsewhere, ``[batch, 1, 1, tokens]``."""
    batch, tokens = b.shape(attention_mask)
    real = b.emit("Cast", "attention_mask.float", [attention_mask], (batch, tokens), to=1)
    wide = b.reshape("attention_mask.wide", real, (batch, 1, 1, tokens))
    inverse = b.binary("Sub", "attention_mask.inverse", b.scalar("one", 1.0), wide)
    return b.binary("Mul", "attention_mask.bias", inverse, b.scalar("lowest", float(np.finfo(np.float32).min)))


def _embedded(layers: Layers, folder: Folder, ids: str, offset: int) -> str:
    """Sum of word, position and (where there are any) type embeddings, normalised."""
    b, c = layers.builder, folder.config
    hidden, (batch, tokens) = c.size("hidden_size", "dim"), b.shape(ids)
    x = _looked_up(layers, "word", ids, c.size("vocab_size"), hidden)
    where = b.array("positions", np.tile(np.arange(offset, offset + tokens), (batch, 1)).astype(np.int64))
    positions = c.size("max_position_embeddings", default=512)
    x = b.binary("Add", "embeddings.with_positions", x, _looked_up(layers, "position", where, positions, hidden))
    kinds = c.size("type_vocab_size", default=0 if c.text("model_type", "") == "distilbert" else 2, least=0)
    if kinds:
        types = b.input("token_type_ids", (batch, tokens), DType.I64)
        x = b.binary("Add", "embeddings.with_types", x, _looked_up(layers, "token_type", types, kinds, hidden))
    return layers.norm("embeddings.LayerNorm", x)


def _looked_up(layers: Layers, kind: str, ids: str, count: int, hidden: int) -> str:
    """Rows of an embedding table for ids ``[batch, tokens]``."""
    b, name = layers.builder, f"embeddings.{kind}_embeddings"
    inputs = [b.weight(layers.weights.get(f"{name}.weight", count, hidden)), ids]
    x = b.emit("Gather", name, inputs, (*b.shape(ids), hidden), axis=0)
    return b.reshape(f"{name}.rows", x, (b.tensors[ids].elements, hidden))


def _outputs(layers: Layers, x: str, tokens: int) -> None:
    b, hidden = layers.builder, layers.builder.shape(x)[-1]
    wanted = b.array("last_hidden_state.shape", np.asarray((layers.batch, tokens, hidden), np.int64))
    b.output(b.emit("Reshape", "last_hidden_state", [x, wanted], (layers.batch, tokens, hidden)))
    if layers.weights.has("pooler.dense.weight"):
        first = b.array("first_rows", (np.arange(layers.batch) * tokens).astype(np.int64))
        y = b.emit("Gather", "first_positions", [x, first], (layers.batch, hidden), axis=0)
        b.output(b.unary("Tanh", "pooler_output", layers.linear("pooler.dense", y, hidden)))
