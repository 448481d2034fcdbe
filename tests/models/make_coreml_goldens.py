"""Small Core ML models: nets of ``make_torch_goldens.py`` converted, and ML programs built operation by operation.

Run with PyTorch and coremltools installed, which the tests do not need: ``python make_coreml_goldens.py ../frontends/data/coreml``.
The committed files were written by coremltools 9.0 and PyTorch 2.13.0 on Linux. ``cnn`` and ``mobile`` have the weights and the
outputs of the same nets in ``../frontends/data/torch``; what ``built.npz`` expects of the others was computed here with numpy. The
maps of protobuf have no order, so the bytes of the packages differ from run to run.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from make_torch_goldens import Cnn, Mobile, seeded

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    """Random numbers of about 1."""
    return RNG.standard_normal(shape).astype(np.float32)


def keep(model: ct.models.MLModel, path: Path) -> None:
    """Save a model without the folder's author files, under names that do not change from run to run."""
    model.user_defined_metadata.clear()
    if path.exists():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    model.save(str(path))
    manifest = path / "Manifest.json"
    if manifest.is_file():
        import json

        described = json.loads(manifest.read_text())
        for k, key in enumerate(sorted(described["itemInfoEntries"], key=lambda i: described["itemInfoEntries"][i]["name"])):
            item = described["itemInfoEntries"].pop(key)
            described["itemInfoEntries"][f"item-{k}"] = item
            if key == described["rootModelIdentifier"]:
                described["rootModelIdentifier"] = f"item-{k}"
        manifest.write_text(json.dumps(described, indent=1) + "\n")
    for file in path.rglob("*") if path.is_dir() else []:
        file.chmod(0o755 if file.is_dir() else 0o644)


def converted(folder: Path) -> None:
    """The convolutional nets as ML programs and as neural networks."""
    image, tensor = torch.zeros(1, 3, 32, 32), torch.zeros(2, 4, 8, 8)
    cnn, mobile = torch.jit.trace(seeded(Cnn()), image), torch.jit.trace(seeded(Mobile()), tensor)
    exact = {"compute_precision": ct.precision.FLOAT32, "minimum_deployment_target": ct.target.iOS17}
    keep(ct.convert(cnn, inputs=[ct.TensorType(name="x", shape=image.shape)], **exact), folder / "cnn.mlpackage")
    flexible = ct.TensorType(name="x", shape=(ct.RangeDim(1, 8, 2), 4, 8, 8))
    keep(ct.convert(mobile, inputs=[flexible], **exact), folder / "mobile.mlpackage")
    pixels = ct.ImageType(name="x", shape=image.shape, scale=0.5, bias=[0.1, 0.2, 0.3])
    keep(ct.convert(cnn, inputs=[pixels], convert_to="neuralnetwork"), folder / "cnn.mlmodel")
    model = ct.convert(mobile, inputs=[ct.TensorType(name="x", shape=tensor.shape)], convert_to="neuralnetwork")
    keep(model, folder / "mobile.mlmodel")
    keep(ct.models.neural_network.quantization_utils.quantize_weights(model, 8), folder / "mobile8.mlmodel")


def attention(expected: dict[str, np.ndarray]) -> ct.models.MLModel:
    """An encoder block in float16 with layer norms, attention, GELU, slices and joins."""
    w = {n: normal(*s) / 4 for n, s in {"qkv": (24, 8), "out": (8, 8), "up": (16, 8), "down": (8, 16)}.items()}
    gamma, beta = 1 + normal(8) / 8, normal(8) / 8

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 6, 8))], opset_version=ct.target.iOS18)
    def block(x):
        y = mb.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta)
        y = mb.linear(x=y, weight=w["qkv"])
        q, k, v = (mb.transpose(x=mb.reshape(x=p, shape=[1, 6, 2, 4]), perm=[0, 2, 1, 3]) for p in mb.split(x=y, num_splits=3, axis=-1))
        y = mb.scaled_dot_product_attention(query=q, key=k, value=v)
        y = mb.linear(x=mb.reshape(x=mb.transpose(x=y, perm=[0, 2, 1, 3]), shape=[1, 6, 8]), weight=w["out"])
        x = mb.add(x=x, y=y)
        y = mb.linear(x=mb.gelu(x=mb.linear(x=x, weight=w["up"]), mode="EXACT"), weight=w["down"])
        y = mb.add(x=x, y=y)
        first = mb.slice_by_index(x=y, begin=[0, 0, 0], end=[0, 0, 4], begin_mask=[True, True, False], end_mask=[True, True, False])
        return mb.concat(values=[first, mb.square(x=first)], axis=-1, name="y")

    x = normal(1, 6, 8)
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta
    q, k, v = (p.reshape(1, 6, 2, 4).transpose(0, 2, 1, 3) for p in np.split(norm @ w["qkv"].T, 3, -1))
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) / 2)
    y = x + ((scores / scores.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3).reshape(1, 6, 8) @ w["out"].T
    up = torch.nn.functional.gelu(torch.from_numpy(y @ w["up"].T)).numpy()
    y = (y + up @ w["down"].T)[..., :4]
    expected.update({"attention.in.x": x, "attention.out": np.concatenate([y, y * y], -1)})
    return ct.convert(block, minimum_deployment_target=ct.target.iOS18)


def state(expected: dict[str, np.ndarray]) -> ct.models.MLModel:
    """A cache that moves by one row each step, and a product with it."""

    @mb.program(
        input_specs=[mb.TensorSpec((1, 4), dtype=types.fp16), mb.StateTensorSpec((5, 4), dtype=types.fp16)], opset_version=ct.target.iOS18
    )
    def step(x, cache):
        old = mb.read_state(input=cache)
        new = mb.concat(values=[mb.slice_by_size(x=old, begin=[1, 0], size=[4, 4]), x], axis=0)
        new = mb.coreml_update_state(state=cache, value=new)
        return mb.matmul(x=x, y=new, transpose_y=True, name="y")

    x, cache = normal(1, 4).astype(np.float16), normal(5, 4).astype(np.float16)
    after = np.concatenate([cache[1:], x])
    expected.update({"state.in.x": x, "state.in.cache": cache, "state.out": x @ after.T, "state.cache": after})
    return ct.convert(step, minimum_deployment_target=ct.target.iOS18)


def compressed(expected: dict[str, np.ndarray]) -> ct.models.MLModel:
    """Weights with scales per channel and per block, 8 and 4 bits."""
    eight, scale = RNG.integers(-90, 90, (8, 16)).astype(np.int8), (np.abs(normal(8, 1)) / 64 + 0.01).astype(np.float32)
    four, blocks = RNG.integers(-8, 8, (16, 8)), (np.abs(normal(16, 2)) / 8 + 0.05).astype(np.float32)

    @mb.program(input_specs=[mb.TensorSpec((3, 16))], opset_version=ct.target.iOS18)
    def layers(x):
        first = mb.constexpr_blockwise_shift_scale(data=eight, scale=scale)
        second = mb.constexpr_blockwise_shift_scale(data=four.astype(types.np_int4_dtype), scale=blocks)
        return mb.linear(x=mb.relu(x=mb.linear(x=x, weight=first)), weight=second, name="y")

    x = normal(3, 16)
    y = np.maximum(x @ (eight * scale).T, 0) @ (four * np.repeat(blocks, 4, 1)).T
    expected.update({"compressed.in.x": x, "compressed.out": y.astype(np.float32)})
    return ct.convert(layers, minimum_deployment_target=ct.target.iOS18, compute_precision=ct.precision.FLOAT32)


def palette(expected: dict[str, np.ndarray]) -> ct.models.MLModel:
    """A convolution whose weights are 4-bit indices of two tables, and one whose weights are sparse."""
    indices, table = RNG.integers(0, 16, (8, 3, 3, 3)), normal(2, 1, 1, 1, 16, 1)
    mask = RNG.integers(0, 2, (8, 8, 1, 1))
    some = normal(int(mask.sum()))

    @mb.program(input_specs=[mb.TensorSpec((1, 3, 8, 8))], opset_version=ct.target.iOS18)
    def layers(x):
        weight = mb.constexpr_lut_to_dense(indices=indices.astype(types.np_uint4_dtype), lut=table)
        sparse = mb.constexpr_sparse_to_dense(nonzero_data=some, mask=mask.astype(types.np_uint1_dtype))
        return mb.conv(x=mb.conv(x=x, weight=weight, pad_type="same"), weight=sparse, name="y")

    x, dense = normal(1, 3, 8, 8), np.zeros(mask.shape, np.float32)
    dense[mask == 1] = some
    weight = np.concatenate([table.reshape(2, 16)[k][part] for k, part in enumerate(np.split(indices, 2))])
    conv = torch.nn.functional.conv2d
    y = conv(conv(torch.from_numpy(x), torch.from_numpy(weight), padding=1), torch.from_numpy(dense))
    expected.update({"palette.in.x": x, "palette.out": y.numpy()})
    return ct.convert(layers, minimum_deployment_target=ct.target.iOS18, compute_precision=ct.precision.FLOAT32)


def main(folder: Path) -> None:
    """Write every model, and ``built.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    expected: dict[str, np.ndarray] = {}
    converted(folder)
    for make in (attention, state, compressed, palette):
        keep(make(expected), folder / f"{make.__name__}.mlpackage")
    np.savez_compressed(folder / "built.npz", **expected)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
