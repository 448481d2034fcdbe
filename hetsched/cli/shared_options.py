"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.headings import ANSWER, MODEL, TARGET

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object (stable keys) instead of tables.")]
Soc = Annotated[
    str | None, typer.Option("--soc", metavar="ID", help="A SoC id (see 'hetsched socs'), a YAML file, or 'host'.", rich_help_panel=TARGET)
]
Dim = Annotated[
    list[str],
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="Size of a symbolic dimension (batch=1; of one of several models: MODEL:batch=1). Repeatable.",
        rich_help_panel=MODEL,
    ),
]
WhatIf = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="What-if hardware: npu.int8_tops=100, memory.bandwidth_gbps=120, any field (socs ID --json). Repeatable.",
        rich_help_panel=TARGET,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto: float models in float, quantized ones in their own integers. float: everything. mixed: float or"
        " w8a8, op by op (see --max-loss). w8a8: 8-bit integers; a float"
        " model needs 'calibrate-ranges' before it runs. w8a8-dynamic: CPU kernels quantize activations when they arrive."
        " w8a16: 8-bit weights, 16-bit activations, on Snapdragon NPUs. w4a16: the same with 4-bit matrix products."
        " w4a8: language models on phones as engines run them, 4-bit weights and on CPUs 8-bit activations."
        " fp8: accelerators that --set npu.fp8_tops makes. Text is generated in w4a16 (auto) or, faster and less exact, w4a8.",
        rich_help_panel=MODEL,
    ),
]
Ranges = Annotated[
    Path | None,
    typer.Option(
        "--ranges",
        metavar="FILE",
        help="Activation ranges for w8a8 and level 3. Default: MODEL.ranges.json, if it is there.",
        rich_help_panel=MODEL,
    ),
]
Runtime = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Vendor runtime whose support and overheads are assumed: default | qnn | litert | ort | coreml | ncnn | mnn | llama.cpp ...",
        rich_help_panel=TARGET,
    ),
]
Solver = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What looks for the placement. auto: several, never worse than any of them. vendor: as vendor runtimes do. single:npu: all in"
        " one place. Also ilp, frontier-dp, heft, peft, cpop, rules[:FILE].",
        rich_help_panel=ANSWER,
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What is to be least: latency | energy | edp (energy times delay) | period (of a pipeline).",
        rich_help_panel=ANSWER,
    ),
]
TimeLimit = Annotated[
    str, typer.Option("--time-limit", metavar="TIME", help="Budget of the solver, about seconds of one core.", rich_help_panel=ANSWER)
]
Phase = Annotated[str | None, typer.Option(metavar="NAME", help="Of a plan with a prompt: prefill | decode (default).")]
Trace = Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Write the trace: .pftrace (Perfetto) or .parquet.")]
