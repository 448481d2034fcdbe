"""Plans and the files that hold them.

A :class:`Deployment` is what ``plan.json`` contains: (model, phase, level) -> :class:`Plan`, with all that is needed to
rebuild the cost table. It is byte-stable: same input, same bytes; no clock time, no machine path, sorted keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hetsched.accounts import Accounts, RefusedOps, TypeWork
from hetsched.anchors import Anchor
from hetsched.measured import Measured
from hetsched.plan_language import Language
from hetsched.soc_quantities import Name, Strict
from hetsched.versions import MINIMUM_RUNTIME, OPERATOR_SET, QUANTIZATION_SCHEMA, check_versions, version_header

Status = Literal["optimal", "feasible", "heuristic", "clock"]


class Choice(Strict):
    """What one candidate place would cost an op on its own, for ``explain``."""

    queue: str
    precision: str
    seconds: float
    energy_j: float
    plan_latency_s: float | None = None
    """Latency of the whole plan with only this op moved there."""


class Placement(Strict):
    """Where one op runs and why. ``origin`` are the names of the user's own nodes."""

    op: str
    type: str
    origin: tuple[str, ...]
    queue: str
    precision: str
    delegate: str
    seconds: float
    energy_j: float
    cause: str
    refusals: tuple[str, ...] = ()
    """Where it cannot run: ``npu w8a8: reason``."""
    alternatives: tuple[Choice, ...] = ()


class PlanSegment(Strict):
    """A maximal run of ops on one queue. ``start_s`` / ``end_s`` are predicted, without contention."""

    index: int
    queue: str
    ops: tuple[str, ...]
    start_s: float
    end_s: float
    launch_s: float
    transfer_s: float
    work_s: float
    energy_j: float
    transfers: tuple[str, ...] = ()
    """Tensors converted or made visible on entry."""


class PlanCopy(Strict):
    """A copy that the DMA engine makes for a segment."""

    tensor: str
    segment: int
    start_s: float
    end_s: float


class Fence(Strict):
    """Signalled at the end of segment ``signal``, waited for before segment ``wait``. Redundant ones are left out."""

    signal: int
    wait: int
    sync_s: float
    mode: Literal["spin", "block"]


class Buffer(Strict):
    """A tensor's place in the arena. It lives from segment ``first`` to segment ``last`` in happens-before order."""

    tensor: str
    offset: int = Field(ge=0)
    nbytes: int = Field(ge=0)
    first: int
    last: int


class Prediction(Strict):
    """Predicted figures; intervals are 80 %."""

    latency_s: float
    latency_interval_s: tuple[float, float]
    serial_s: float
    simulated_s: float | None = None
    energy_j: float
    peak_memory_bytes: int
    weight_bytes: int
    arena_bytes: int
    arena_bound_bytes: int = 0
    """No arena for this order and placement is smaller."""
    pool_bytes: int = 0
    """Of the arena: states (key-value caches) that stay between inferences."""
    workspace_bytes: int = 0
    """What CPU kernels need beside the arena: a pool for each queue."""
    unshared_bytes: int = 0
    """What the arena would take if no two tensors shared bytes; 0: not known."""
    loss: float | None = None
    """Accuracy lost, in the unit of the sensitivities that were given; None: none were."""

    @property
    def saved(self) -> float:
        """Share of the bytes without sharing that the arena saves."""
        return 1.0 - self.arena_bytes / self.unshared_bytes if self.unshared_bytes else 0.0


class Baseline(Strict):
    """A solver shown beside the plan."""

    solver: str
    latency_s: float | None
    energy_j: float | None
    segments: int | None
    reason: str = ""
    """Why it has no figure, if it has none."""
    accounts: Accounts | None = None
    types: tuple[TypeWork, ...] = ()
    """Its ops by type."""
    refused: tuple[RefusedOps, ...] = ()
    """Of ``vendor``: what the accelerator that it prefers does not take."""


class FrontPoint(Strict):
    """A plan that no other plan found beats in both latency and energy."""

    latency_s: float
    energy_j: float
    segments: int
    ops_by_queue: dict[str, int]
    gap: float | None
    """How much less energy a plan of at most this latency could need (of the first point: how much faster one could be); None: unknown."""


class Plan(Strict):
    """A placement, its order and everything derived from them."""

    solver: str
    objective: Literal["latency", "energy", "edp", "period"]
    status: Status
    bound_s: float
    """Proven lower bound of the objective (seconds, joules or joule-seconds)."""
    gap: float
    order: tuple[str, ...]
    placements: tuple[Placement, ...]
    segments: tuple[PlanSegment, ...]
    copies: Annotated[tuple[PlanCopy, ...], Field(exclude_if=lambda made: not made)] = ()
    """Of the DMA engine, in its order; none without one."""
    fences: tuple[Fence, ...]
    buffers: tuple[Buffer, ...]
    arena_bytes: int
    prediction: Prediction
    accounts: Accounts | None = None
    baselines: tuple[Baseline, ...] = ()
    front: Annotated[tuple[FrontPoint, ...], Field(max_length=256)] = ()
    """Latency against energy, fastest first; empty: not asked for."""
    notes: tuple[str, ...] = ()


class ModelRef(Strict):
    """The model a plan was made for. ``path`` is relative to the plan file where possible."""

    path: str
    sha256: str
    dims: dict[str, int] = Field(default_factory=dict)
    format: str = "onnx"


class SoCRef(Strict):
    """The SoC a plan was made for; ``host`` plans embed the measured SoC so that they can be explained elsewhere."""

    id: Name
    sha256: str
    overrides: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any] | None = None
    """The whole SoC, where no SoC file describes it: ``host``, or a YAML file of the user's own."""


class RangesRef(Strict):
    """The activation ranges that a float model was quantized with. ``path`` is relative to the plan file where possible."""

    path: str
    sha256: str


class Header(Strict):
    """What a reader must check first."""

    schema_version: Literal[1] = 1
    operator_set: str = OPERATOR_SET
    quantization_schema: int = QUANTIZATION_SCHEMA
    minimum_runtime: str = MINIMUM_RUNTIME
    hetsched: str


Phase = Literal["inference", "prefill", "decode", "verify", "draft"]
"""``verify``: checking several guessed tokens at once; ``draft``: a step of what guesses them."""


class Entry(Strict):
    """One plan of a deployment. ``dims`` are those of the model that make this phase; empty: the model's own."""

    phase: Phase = "inference"
    level: Annotated[int, Field(ge=0, le=4)] = 0
    plan: Plan
    dims: dict[str, int] = Field(default_factory=dict)
    splits: Annotated[dict[str, Annotated[tuple[int, ...], Field(max_length=16)]], Field(max_length=100_000)] = Field(default_factory=dict)
    """Operators that two processors share: name -> output channels at which they are cut."""
    clocks: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """Processor -> fraction of its top clock that the costs are for; empty: the top."""
    queues: Annotated[dict[Name, str], Field(max_length=64)] = Field(default_factory=dict)
    """Queues on fewer cores than in the SoC file: name -> ``processor:cores``; empty: all are as there."""
    precision: str = ""
    """Of this entry; empty: the deployment's."""


Stage = tuple[Phase, Annotated[int, Field(ge=0, le=4)]]
"""Phase and level of an entry."""


class Switch(Strict):
    """What it takes to go from one entry to another."""

    before: Stage
    after: Stage
    weight_bytes: int
    """Weights that only the second holds: more memory if they are kept beside the first's, else packed anew in ``pack_s``."""
    pack_s: float
    state_bytes: int
    """States (KV caches) that move to another processor, in ``handover_s``."""
    handover_s: float


class Deployment(Strict):
    """The contents of a plan file."""

    header: Header
    model: ModelRef
    soc: SoCRef
    runtime: str = "default"
    precision: str = "auto"
    parameters: str = ""
    """Version of the cost model's parameter files."""
    ranges: RangesRef | None = None
    language: Language | None = None
    anchors: Annotated[tuple[Anchor, ...], Field(max_length=64)] = ()
    """Measured whole-model latencies that correct the cost table."""
    measured: Measured | None = None
    """Measured times of single operators that take the place of the model's."""
    entries: tuple[Entry, ...] = Field(min_length=1)
    """Level 0 first; the prefill before the decode, then ``verify`` and ``draft``."""
    switches: Annotated[tuple[Switch, ...], Field(max_length=64)] = ()

    def alone(self, entry: Entry) -> Deployment:
        """A deployment of one of the entries only."""
        return self.model_copy(update={"entries": (entry,)})

    def to_json(self) -> str:
        """Byte-stable JSON with a final newline."""
        import json

        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_file(cls, path: Path) -> Deployment:
        """Read and validate a plan file.

        Raises:
            PlanError: absent, not JSON, not a plan, made by an incompatible version, or its parts contradict each other.
        """
        from pydantic import ValidationError

        from hetsched import wrong_fields
        from hetsched.errors import PlanError
        from hetsched.plan_rules import check_entries, check_plan

        if not path.is_file():
            raise PlanError(f"there is no plan file {path}")
        if path.stat().st_size > 256 << 20:
            raise PlanError(f"the plan file {path} is larger than 256 MiB: it is not a plan")
        raw = path.read_bytes()
        try:
            found = cls.model_validate_json(raw)
        except ValidationError as e:
            check_versions(_header_in(raw), str(path), "make the plan again", PlanError)  # a newer plan is not called a damaged one
            raise PlanError(f"{path} is not a valid plan file: {wrong_fields.fault(e, cls)}; make it again with 'hetsched plan'") from e
        check_versions(found.header.model_dump(), str(path), "make the plan again", PlanError)
        try:
            check_entries([(e.phase, e.level, e.splits) for e in found.entries])
            for entry in found.entries:
                check_plan(entry.plan)
        except PlanError as e:
            raise PlanError(f"{path} is not a valid plan file: {e}; make it again with 'hetsched plan'") from e
        return found


def _header_in(raw: bytes) -> dict[str, Any]:
    """The version header in what may be no valid plan; where something is absent, what this runtime writes."""
    import json

    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError):
        whole = None
    said = whole.get("header") if isinstance(whole, dict) else None
    return version_header() | (said if isinstance(said, dict) else {})
