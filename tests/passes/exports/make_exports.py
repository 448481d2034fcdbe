"""Make the ONNX files of this folder: small transformers, each exported by torch in both ways (torchscript and dynamo).

Run with torch 2.13 (CPU), onnx and onnxscript, none of which the tests need: ``python make_exports.py``. Weights are seeded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, SHARED, TOKENS, PAST = 16, 4, 2, 6, 3
DIM = WIDTH // HEADS


def heads(x: Tensor, count: int = HEADS) -> Tensor:
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def rows(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Written(nn.Module):
    """Post-norm encoder layer as BERT has it: scores divided, mask added."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = heads(self.q(x)) @ heads(self.k(x)).transpose(-1, -2) / DIM**0.5 + mask
        return rows(scores.softmax(-1) @ heads(self.v(x)))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.n1(x + self.o(self.attend(x, mask)))
        return self.n2(x + self.down(F.gelu(self.up(x))))


class Sdpa(Written):
    """The same through torch's scaled_dot_product_attention, with a mask of numbers."""

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        return rows(F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), attn_mask=mask))


class Boolean(Written):
    """The same with a boolean mask."""

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        return rows(F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), attn_mask=mask > -1))


class Causal(Written):
    """The same with the mask that torch makes itself."""

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        return rows(F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), is_causal=True)) + mask.sum()


class Filled(Written):
    """The same with masked_fill, tanh-approximated GELU and a query that is scaled first."""

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = heads(self.q(x) * DIM**-0.5) @ heads(self.k(x)).transpose(-1, -2)
        return rows(scores.masked_fill(mask < -1, torch.finfo(scores.dtype).min).softmax(-1) @ heads(self.v(x)))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.n1(x + self.o(self.attend(x, mask)))
        return self.n2(x + self.down(F.gelu(self.up(x), approximate="tanh")))


class Bmm(Written):
    """The same on matrices ``[batch · heads, tokens, dim]``."""

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (heads(p(x)).reshape(-1, TOKENS, DIM) for p in (self.q, self.k, self.v))
        scores = torch.bmm(q * DIM**-0.5, k.transpose(1, 2)).view(-1, HEADS, TOKENS, TOKENS) + mask
        mixed = torch.bmm(scores.view(-1, TOKENS, TOKENS).softmax(-1), v)
        return rows(mixed.view(-1, HEADS, TOKENS, DIM))


class Joined(nn.Module):
    """Pre-norm layer with one product for queries, keys and values, as timm's ViT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.n1(x)).reshape(x.shape[0], TOKENS, 3, HEADS, DIM).permute(2, 0, 3, 1, 4).unbind(0)
        return self.n2(x + self.o(rows(F.scaled_dot_product_attention(q, k, v))))


class Split(nn.Module):
    """Joined products that are split: queries, keys and values; gate and up."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.both, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads(part) for part in self.qkv(x).chunk(3, -1))
        x = self.n1(x + self.o(rows(F.scaled_dot_product_attention(q, k, v))))
        gate, up = self.both(x).chunk(2, -1)
        return self.n2(x + self.down(F.silu(gate) * up))


class Module(nn.Module):
    """torch's own MultiheadAttention (``in_proj``), which puts tokens before the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(x)
        return self.n2(x + self.attention(y, y, y, need_weights=False)[0])


class Cross(nn.Module):
    """Attention of the tokens over another sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=i != 1) for i in range(4))
        self.n1 = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        q, k, v = heads(self.q(self.n1(x))), heads(self.k(other)), heads(self.v(other))
        return x + self.o(rows(F.scaled_dot_product_attention(q, k, v)))


class RMSNorm(nn.Module):
    """As transformers writes it: in float32 whatever the type, the weight applied after."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def rotate(x: Tensor) -> Tensor:
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), -1)


class Decoder(nn.Module):
    """A llama layer: grouped queries, rotary positions, a cache, a gated unit."""

    interleaved = False
    softcap = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, SHARED * DIM, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.n1, self.n2, self.n3 = RMSNorm(), RMSNorm(), RMSNorm()

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + rotate(x) * sin

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * torch.tensor([1.0, 0.1])
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(dtype).unsqueeze(1), angles.sin().to(dtype).unsqueeze(1)

    def repeated(self, x: Tensor) -> Tensor:
        b, h, t, d = x.shape
        return x[:, :, None].expand(b, h, HEADS // SHARED, t, d).reshape(b, HEADS, t, d)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ self.repeated(k).transpose(2, 3) * DIM**-0.5
        if self.softcap:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        return rows((scores + mask).softmax(-1, dtype=torch.float32).to(q.dtype) @ self.repeated(v))

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, ...]:
        cos, sin = self.tables(positions, x.dtype)
        y = self.n1(x)
        q, k = (self.turned(heads(p(y), n), cos, sin) for p, n in ((self.q, HEADS), (self.k, SHARED)))
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, heads(self.v(y), SHARED)), 2)
        x = x + self.o(self.attend(q, k, v, mask))
        y = self.n2(x)
        return self.n3(x + self.down(self.activation(self.gate(y)) * self.up(y))), k, v

    def activation(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Repeated(Decoder):
    """The same with keys and values repeated by repeat_interleave."""

    def repeated(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(HEADS // SHARED, 1)


class Interleaved(Decoder):
    """Neighbouring elements turned, a cap on the scores, GELU in the gate (as in other families)."""

    softcap = 5.0

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos, sin = cos[..., : DIM // 2], sin[..., : DIM // 2]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def activation(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


def export(name: str, net: nn.Module, feeds: dict[str, Tensor], outputs: list[str]) -> None:
    for way in ("torchscript", "dynamo"):
        path = Path(__file__).parent / f"{name}_{way}.onnx"
        torch.onnx.export(
            net, tuple(feeds.values()), str(path), input_names=list(feeds), output_names=outputs, dynamo=way == "dynamo",
            opset_version=18 if way == "dynamo" else 14, external_data=False, do_constant_folding=way == "dynamo",
        )  # fmt: skip
        model = onnx.load(path)
        del model.metadata_props[:]
        model.graph.ClearField("value_info")
        for node in model.graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        onnx.save(model, path)


def main() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(2, TOKENS, WIDTH), torch.zeros(2, 1, 1, TOKENS)
    layers = {"written": Written, "sdpa": Sdpa, "boolean": Boolean, "causal": Causal, "filled": Filled, "bmm": Bmm}
    for name, net in ((name, kind()) for name, kind in layers.items()):
        export(name, net.eval(), {"x": x, "mask": mask}, ["y"])
    export("half", Written().half().eval(), {"x": x.half(), "mask": mask.half()}, ["y"])
    export("joined", Joined().eval(), {"x": x}, ["y"])
    export("split", Split().eval(), {"x": x}, ["y"])
    export("module", Module().eval(), {"x": x[:1]}, ["y"])
    export("cross", Cross().eval(), {"x": x, "other": torch.randn(2, 9, WIDTH)}, ["y"])
    past = torch.randn(2, SHARED, PAST, DIM)
    feeds = {
        "x": x, "mask": torch.zeros(2, 1, TOKENS, PAST + TOKENS), "positions": torch.arange(PAST, PAST + TOKENS).repeat(2, 1),
        "past_key": past, "past_value": torch.randn_like(past),
    }  # fmt: skip
    outputs = ["y", "present_key", "present_value"]
    export("decoder", Decoder().eval(), feeds, outputs)
    export("repeated", Repeated().eval(), feeds, outputs)
    export("interleaved", Interleaved().eval(), feeds, outputs)
    half = {k: v.half() if v.is_floating_point() else v for k, v in feeds.items()}
    export("decoder_half", Decoder().half().eval(), half, outputs)


if __name__ == "__main__":
    sys.exit(main())
