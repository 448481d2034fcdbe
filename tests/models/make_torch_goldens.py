"""Small nets saved with torch.export and exported to ONNX in both spellings, with their inputs and outputs.

Run with PyTorch installed, which the tests do not need: ``python make_torch_goldens.py ../frontends/data/torch``. The committed
files were written by PyTorch 2.13.0, onnxscript 0.7.2 and onnx 1.23.2 on Linux. What PyTorch adds for debugging (source lines,
module paths, sample inputs) is removed, and the JSON is compressed: both keep the files small. Weights are random (seeded), and the
batch norms' statistics are too, so that no tensor is constant.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

BATCH = torch.export.Dim("batch", min=1, max=64)


class Cnn(nn.Module):
    """Convolutions with batch norms, a residual, a strided shortcut, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.a = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.b = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.short = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        y = torch.relu(self.b(self.a(y)) + self.short(y))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class Encoder(nn.Module):
    """One pre-norm encoder block with one projection of Q, K and V, on token ids."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(20, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Mobile(nn.Module):
    """Inverted residual with squeeze and excitation, hard-swish, then up-sampling; the batch is free."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(inplace=True))
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 5, 1, 2, groups=16, bias=False), nn.BatchNorm2d(16), nn.Hardswish(inplace=True))
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.project = nn.Sequential(nn.Conv2d(16, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.head = nn.Sequential(nn.Conv2d(4, 8, 3, 1, 1), nn.SiLU(), nn.Conv2d(8, 2, 1), nn.ReLU6())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.expand(x))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        y = x + self.project(y * gate)
        return self.head(F.interpolate(y, scale_factor=2, mode="bilinear"))


class Decoder(nn.Module):
    """One decoder step with RMS norms, rotary embedding, grouped KV heads, SwiGLU; the KV cache is a buffer that it writes."""

    def __init__(self, width: int = 16, heads: int = 4, kv_heads: int = 2, past: int = 8) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.past = heads, kv_heads, width // heads, past
        kv = kv_heads * self.dim
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(width, n, bias=False) for n in (width, kv, kv, width))
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((width, 32), (width, 32), (32, width)))
        self.register_buffer("keys", torch.zeros(1, kv_heads, past, self.dim))
        self.register_buffer("values", torch.zeros(1, kv_heads, past, self.dim))
        self.register_buffer("frequencies", 100.0 ** (-torch.arange(0, self.dim, 2) / self.dim), persistent=False)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        angles = torch.outer(position.float(), self.frequencies)
        cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
        y = self.norm1(x)
        q = self.rotate(self.q(y).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = self.rotate(self.k(y).view(b, t, self.kv_heads, self.dim).transpose(1, 2), cos, sin)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, self.v(y).view(b, t, self.kv_heads, self.dim).transpose(1, 2))
        mask = torch.arange(self.past) <= position[:, None]
        y = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers, then a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), nn.GRU(12, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(self.lstm(x)[0])[0]


class Mixed(nn.Module):
    """Operators of many kinds: norms, padding, shuffles, slices that are written in place, a part without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.instance, self.prelu = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.PReLU(8)
        self.up, self.pad, self.shuffle = nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), nn.ReflectionPad2d(1), nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.prelu(self.instance(self.group(x)))
        y = F.softplus(y) + F.elu(y)
        left, right = F.interpolate(self.shuffle(self.up(self.pad(y))), scale_factor=2).chunk(2, -1)
        best, _ = torch.where(left > right, left, right.clamp(min=0)).topk(3, -1)
        table = torch.einsum("bchw,bdhw->bcd", x, x).roll(1, 1).flip(2)
        rows = table.std(-1) + table.var(1) + table.norm(dim=1) + table.amax(1) + table.cumsum(1).mean(1)
        with torch.no_grad():
            rows = rows * 2
        written = torch.gather(table, 1, torch.argsort(table, 1)).masked_fill(table < 0, -1.0)
        written[:, 0] = 3.0
        written[:, :, 1:3] += 1
        rest = torch.remainder(x, 0.7).mean() + torch.fmod(x, 2).mean() + torch.log1p(x.abs()).mean() + (x // 0.5).mean()
        return torch.cat([best.flatten(), rows.flatten(), written.flatten(), rest[None]])


def seeded(net: nn.Module) -> nn.Module:
    """Weights that make every tensor vary."""
    torch.manual_seed(7)
    for name, p in [*net.named_parameters(), *net.named_buffers()]:
        if "num_batches" in name or name in {"keys", "values", "frequencies"}:
            continue
        with torch.no_grad():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * (2 / p[0].numel()) ** 0.5)
            else:
                p.copy_(torch.rand_like(p) + 0.5 if "var" in name or "weight" in name else torch.randn_like(p) * 0.1)
    return net.eval()


def stripped(raw: bytes) -> bytes:
    """A ``.pt2`` without what is there for debugging, its JSON compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if "sample_inputs" in name or "/.data/" in name:
                continue
            data, kind = old.read(name), zipfile.ZIP_STORED
            if name.endswith(".json"):
                described = json.loads(data)
                if "graph_module" in described:
                    module = described["graph_module"]
                    module["metadata"], module["module_call_graph"] = {}, module["module_call_graph"][:1]
                    for node in module["graph"]["nodes"]:
                        node["metadata"] = {}
                data, kind = json.dumps(described, separators=(",", ":")).encode(), zipfile.ZIP_DEFLATED
            new.writestr(zipfile.ZipInfo(name), data, kind)
    return out.getvalue()


def save_onnx(model: onnx.ModelProto, path: Path) -> None:
    """An ONNX model without what is there for debugging."""
    for item in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
        *model.graph.initializer,
    ):
        del item.metadata_props[:]
        item.doc_string = ""
    path.write_bytes(model.SerializeToString(deterministic=True))


def main(folder: Path) -> None:
    """Write every net in every form, and ``expected.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(11)
    cases = {
        "cnn": (Cnn(), (torch.randn(1, 3, 32, 32),), None),
        "encoder": (Encoder(), (torch.randint(0, 20, (1, 6)),), None),
        "mobile": (Mobile(), (torch.randn(2, 4, 8, 8),), ({0: BATCH},)),
        "recurrent": (Recurrent(), (torch.randn(2, 5, 4),), None),
        "mixed": (Mixed(), (torch.randn(1, 8, 6, 6),), None),
        "decoder": (Decoder(), (torch.randn(1, 1, 16), torch.tensor([3])), None),
    }
    expected = {}
    for name, (net, inputs, dynamic) in cases.items():
        seeded(net)
        program = torch.export.export(net, inputs, dynamic_shapes=dynamic)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        (folder / f"{name}.pt2").write_bytes(stripped(buffer.getvalue()))
        names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        for key, value in zip(names, inputs, strict=True):
            expected[f"{name}.in.{key}"] = value.numpy()
        for spelling, dynamo in (("dynamo", True), ("torchscript", False)):
            if name in {"recurrent", "mixed"} or (name == "decoder" and not dynamo):
                continue  # the first two have no need of it; tracing knows nothing of buffers that are written
            target = folder / f"{name}.{spelling}.onnx"
            axes = {"dynamic_shapes": dynamic} if dynamo else {"dynamic_axes": {names[0]: {0: "batch"}} if dynamic else None}
            buffer = io.BytesIO()
            torch.onnx.export(net, inputs, buffer, dynamo=dynamo, opset_version=18, input_names=names, output_names=["y"], **axes)
            save_onnx(onnx.load_from_string(buffer.getvalue()), target)
        with torch.no_grad():
            expected[f"{name}.out"] = net(*inputs).numpy()
    np.savez_compressed(folder / "expected.npz", **expected)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
