"""What :mod:`hetsched_simulations.chassis.extract` takes of the measurements, what it leaves out and why, and the phones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """A phone's box and weight as its maker gives them (from memory)."""

    maker: str
    millimetres: tuple[float, float, float]
    grams: float

    @property
    def area_m2(self) -> float:
        """The whole surface of the box."""
        a, b, c = self.millimetres
        return 2e-6 * (a * b + b * c + a * c)


PHONES = {
    "iPhone 17 Pro": Size("apple", (150.0, 71.9, 8.75), 206),
    "iPhone 16 Pro": Size("apple", (149.6, 71.5, 8.25), 199),
    "Galaxy S24 Ultra": Size("samsung", (162.3, 79.0, 8.6), 232),
    "Galaxy S24 FE": Size("samsung", (162.0, 77.3, 8.0), 213),
    "Pixel 6a": Size("google", (152.2, 71.8, 8.9), 178),
    "Pixel 8 Pro": Size("google", (162.6, 76.5, 8.8), 213),
    "Xiaomi Pad 6 Pro": Size("xiaomi", (254.0, 165.2, 6.5), 497),
}


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of one device and workload as a run."""

    run: str
    device: str
    """Part of the column."""
    workload: str
    """A regular expression that its column contains."""
    phone: str
    soc: str
    queue: str
    weight_gb: float = 0.0
    """What one step reads: weights of a language model (billions of parameters x bits / 8; 4.5 bits for 4-bit, 4.85 for Q4_K_M)."""
    start_c: float = 25.0
    """Of a cool phone that of the room; of one that starts *fair* 39 and *serious* 43, as the simulator reads iOS's states."""
    cool_as: tuple[str, str] | None = None
    """(model, engine) in ``llm.csv`` of the peak, if the run starts throttled."""
    timed: bool = False
    """Whether the series says when the rate fell by a quarter."""
    times: tuple[float, ...] = ()
    """Seconds of the rates, where the column has iterations or nothing (assumed)."""
    seconds: float = 0.0
    steady_from_s: float = 0.0
    rest_s: float = 0.0
    rest_share: float = 1.0


_A19 = "iPhone 17 Pro"
TAKEN = (
    Taken("a19pro-gemma-mlx", _A19, "Gemma 4 E2B .* / mlx-swift", _A19, "apple-a19-pro", "gpu", 1.07, timed=True),
    Taken("a19pro-deepseek-mlx", _A19, "DeepSeek-R1", _A19, "apple-a19-pro", "gpu", 0.87, 43.0, ("DeepSeek-R1-Distill-Qwen-1.5B", "mlx")),
    Taken("a19pro-llama-mlx", _A19, "Llama-3.2-3B .* / mlx-swift", _A19, "apple-a19-pro", "gpu", 1.81, 43.0, ("Llama-3.2-3B", "mlx")),
    Taken("a19pro-llama-litert", _A19, "Llama-3.2-3B .* / litert-lm", _A19, "apple-a19-pro", "gpu", 1.81, 43.0, ("Llama-3.2-3B", "litert")),
    Taken("a19pro-gemma-litert", _A19, "continuous decode, LiteRT-LM", _A19, "apple-a19-pro", "gpu", 1.07, timed=True),
    Taken("a19pro-qwen-ane", _A19, "Qwen3-0.6B .*ANE", _A19, "apple-a19-pro", "npu", 0.60, 39.0, timed=True),
    Taken("a19pro-gemma-ane", _A19, "continuous decode, Core ML", _A19, "apple-a19-pro", "npu", 1.07, timed=True),
    # Twenty iterations took a tenth of a battery of 13.9 Wh: 1,000 s at 5 W (estimated).
    Taken("a18pro-qwen-mlx", "A18 Pro", "Qwen2.5-1.5B .* MLX GPU$", "iPhone 16 Pro", "apple-a18-pro", "gpu", 0.87,
          times=(25.0, 75.0, 225.0, 700.0), seconds=1000.0, steady_from_s=350.0),
    Taken("s24u-qwen-mlc", "S24 Ultra", "Qwen2.5-1.5B .* MLC GPU .v2", "Galaxy S24 Ultra", "snapdragon-8-gen-3", "gpu", 0.87,
          times=(0.0, 500.0), seconds=600.0, steady_from_s=400.0),
    # No file of the Exynos 2400e: the generic phone, whose prime and three performance cores run its four threads.
    Taken("s24fe-yolo-cpu", "S24 FE", "YOLOv10-c", "Galaxy S24 FE", "generic-phone", "cpu:4-7", timed=True),
    # Trials of about 10 s every 41 s until 167 s, then back to back.
    Taken("pixel6a-llama-cpu", "Pixel 6a", "Llama-3.2-3B Q4_K_M", "Pixel 6a", "tensor-g1", "cpu:4-7", 1.95, timed=True,
          rest_s=167.0, rest_share=0.25),
    Taken("pixel8pro-yolo-cpu", "Pixel 8 Pro", "YOLOv10-c", "Pixel 8 Pro", "tensor-g3", "cpu:5-8", timed=True),
    Taken("pad6pro-llama-mlc", "Xiaomi Pad 6 Pro", "Llama-2-7B MLC GPU", "Xiaomi Pad 6 Pro", "snapdragon-8-plus-gen-1", "gpu", 3.79,
          times=(0.0, 500.0), seconds=600.0, steady_from_s=400.0),
)  # fmt: skip

#: Part of the device, part of the workload, why its rows are no run.
LEFT_OUT = (
    (_A19, "Qwen3-4B (Core AI", "the rate follows the growing context, a saw-tooth of 120 s (2,048 tokens), at a state of fair at most"),
    (_A19, "continuous decode, MLX", "a second report of a19pro-gemma-mlx"),
    ("A18 Pro", "MLX GPU (v2)", "a second version of a18pro-qwen-mlx"),
    ("S24 Ultra", "MLC GPU", "the first version of s24u-qwen-mlc: after six iterations the system held the GPU at its lowest clock"),
    ("", "idle", "no work"),
    ("M4 Max", "", "a Mac; power only"),
    ("Kirin", "", "temperatures of one inference, no rate"),
    ("Xiaomi 14", "", "temperatures, and one clock by round instead of by time"),
    ("iPhone 15 Pro", "", "a peak temperature, no rate"),
    ("Tensor G1", "elizaOS", "thermal status only"),
    ("X Elite", "", "performance modes, no time"),
)
