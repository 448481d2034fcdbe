"""Systems on chip, as their YAML files describe them. Every figure carries a source or says that it is estimated.

Units are in the names: ``_hz, _v, _w, _j, _s, _bytes, _bytes_s, _ops_s`` (operations per second; one MAC is two),
``_c`` (degrees Celsius), ``_k_per_w``, ``_j_per_k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hetsched.cores import cores_of
from hetsched.errors import SoCError
from hetsched.fusions import CONSERVATIVE, Fusions
from hetsched.soc_battery import Battery
from hetsched.soc_quantities import Bytes, Features, Figure, Market, Name, Number, PerByte, Rate, Seconds, Share, Strict, Watts, within
from hetsched.soc_thermal import OTHER_SOURCES, Thermal

Kind = Literal["cpu", "gpu", "npu"]
#: Id of this machine, measured.
HOST = "host"


class OperatingPoint(Strict):
    """A frequency and its supply voltage; ``voltage_estimated`` is shown wherever power is."""

    hz: Number = Field(ge=1e3, le=1e12)
    v: Number = Field(gt=0, le=2.5)
    voltage_estimated: bool = True


class Cluster(Strict):
    """Identical cores that share a clock. A GPU or an NPU is one cluster."""

    name: Name
    cores: tuple[int, ...] = ()
    isa: Features | None = None
    """CPUs: instruction-set extensions; None: not described."""
    operating_points: tuple[OperatingPoint, ...] = Field(min_length=1)
    operating_points_source: str
    peak_ops_s: dict[str, Rate] = Field(min_length=1)
    """Per precision (``f32, f16, bf16, i8, i16, i4``), whole cluster at the top operating point."""
    dynamic_w: Watts
    """Whole cluster, fully active, at the top operating point; scales with f and V squared."""
    leakage_w: Watts
    """Whole cluster at the top voltage and 25 degrees."""
    leakage_doubling_k: Annotated[Figure, within(5, 1e3)] = Figure(value=30.0, estimated="typical FinFET leakage doubles every 25-35 K")
    idle_w: Watts = Figure(value=0.0, estimated="power-gated when idle")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        hz = [p.hz for p in self.operating_points]
        if hz != sorted(set(hz)):
            raise ValueError(f"operating points of {self.name!r} must ascend in frequency without repeats")
        return self

    @property
    def top(self) -> OperatingPoint:
        """The fastest operating point."""
        return self.operating_points[-1]


class IdleState(Strict):
    """What a processor goes into when it has nothing to do for long: it takes time to come back."""

    name: Name
    after_s: Seconds
    """How long it rests before."""
    exit_s: Seconds
    """What the next piece of work waits for it; it leaks meanwhile, as at work."""


class Processor(Strict):
    """A processor that ops can be placed on."""

    name: Name
    kind: Kind
    model: str
    family: str | None = None
    """Which row of the cost model's parameters applies (``cortex, hexagon, adreno, ...``); None: the kind's default."""
    clusters: tuple[Cluster, ...] = Field(min_length=1)
    delegate: str = "numba"
    compiler_target: Annotated[dict[Name, str], Field(max_length=16, exclude_if=lambda given: not given)] = Field(default_factory=dict)
    """What its vendor's compiler calls it: options of the delegate that name the chip (``htp_arch, soc_model`` of ``qnn``)."""
    compiler_target_source: Annotated[str, Field(max_length=500, exclude_if=lambda given: not given)] = ""
    support: str | None = None
    """Which accelerator table of ``ops_support`` applies; None: everything the CPU kernels have."""
    float_dtype: Literal["f32", "f16"] = "f32"
    """What ``--precision float`` means here, and what activations are stored as."""
    layout: Literal["native", "nhwc", "blocked"] = "native"
    bandwidth_bytes_s: Rate
    """Reachable alone."""
    core_bandwidth_bytes_s: Rate | None = None
    """Reachable by one core, for queues of a few cores; None: one core can use all of ``bandwidth_bytes_s``."""
    serial_share: Annotated[Figure, within(0, 10)] | None = None
    """Of a core's work, what more cores of a queue do not speed up: n reach the sum of their rates over 1 + share (n - 1); None: as
    the cost model's parameters of the family say."""
    onchip_bytes: Bytes
    launch_s: Seconds
    op_overhead_s: Seconds
    address_bytes: Bytes | None = None
    """What one process can address on it (weights and activations together); None: no limit is known."""
    compile_s: Seconds | None = None
    """First compilation of a model on the device, whatever its size; None: not known."""
    compile_s_per_weight: PerByte | None = None
    """What each weight adds to it."""
    utilisation: dict[str, Share] = Field(default_factory=dict)
    """Share of the peak that an operator class reaches (``conv1x1, conv, grouped, depthwise, gemm, matmul``), or one at one
    precision (``conv/i8``). What is absent comes from the cost model's parameters of the family."""
    vector_bytes_s: Rate | None = None
    """Rate of non-matrix work on data held on chip."""
    sparsity: Annotated[Figure, within(1, 8)] | None = None
    """How many times as fast products with pruned constant weights run (2:4: at most 2); None: zeros are not skipped."""
    idle_states: tuple[IdleState, ...] = ()
    """From the shallowest to the deepest; none: it is always ready."""
    fusions: Fusions = CONSERVATIVE
    """Composites that its compiler makes; it runs the parts of others one by one."""


class Link(Strict):
    """What it takes to pass a tensor from one processor to another (both ways)."""

    between: tuple[Kind, Kind]
    sync_s: Seconds
    coherent: bool
    cache_maintenance_s: Seconds
    """Per tensor, zero if coherent."""
    cache_maintenance_s_per_byte: PerByte
    handle: str | None = None
    """Zero-copy handle kind (``dma-buf, ahardwarebuffer, iosurface, shared``); None: data are copied."""
    fence: str | None = None
    """What signals that a tensor is ready (``sync-file, shared-event, completion-handler``); None: not described."""


class Memory(Strict):
    """DRAM and the system cache."""

    kind: str
    capacity_bytes: Bytes
    peak_bytes_s: Rate
    reachable_bytes_s: Rate
    """By all processors together."""
    together_bytes_s: dict[str, Rate] = Field(default_factory=dict)
    """Measured sums for pairs (``cpu+npu``)."""
    system_cache_bytes: Bytes
    system_cache_bytes_s: Rate | None = None
    """Of what a user adds to the system cache; None: the cost model's estimate."""
    system_cache_j_per_byte: PerByte | None = None
    energy_j_per_byte: PerByte
    in_memory_bytes_s: Rate | None = None
    """At which arithmetic inside the DRAM reads weights (PIM); None: there is none."""
    dma_bytes_s: Rate | None = None
    """At which a DMA engine reads and writes together what has no zero-copy handle; None: there is none, the host copies."""
    dma_launch_s: Seconds | None = None
    """From the fence that a copy waits for to its first byte; None: the cost model's estimate."""
    dma_w: Watts | None = None
    """What the engine draws while it copies; None: the cost model's estimate."""


class SoC(Strict):
    """A system on chip. ``id`` is the marketing name in lower case with hyphens."""

    schema_version: Literal[1] = 1
    id: Name
    name: str
    vendor: str
    family: str
    process_nm: Number | None = Field(default=None, gt=0, le=1000)
    market: Market | None = None
    """What it is sold for and since when: the order from cheap to dear of ``compare``; None: not on the market."""
    processors: tuple[Processor, ...] = Field(min_length=1)
    queues: dict[Name, str]
    """Queue name -> processor, or ``processor:cores`` (``cpu:2-7``)."""
    memory: Memory
    links: tuple[Link, ...] = ()
    thermal: Thermal
    base_w: Watts
    """Rest of the device (display, radios, rails) while inferring."""
    battery: Battery | None = None
    """None: a phone has that of its class, anything else none."""
    governor: Literal["performance", "schedutil", "powersave"] = "performance"
    interval: tuple[Annotated[Number, Field(gt=0, le=1)], Annotated[Number, Field(ge=1, le=100)]] = (0.6, 1.6)
    """80 % interval of a latency prediction, as factors. Assumed, not calibrated: ``interval_estimated`` says on what basis."""
    interval_estimated: str = Field(default="assumed, not calibrated", min_length=1, max_length=500)
    """Basis of ``interval``; shown wherever the interval is."""
    notes: tuple[str, ...] = ()
    overrides: dict[str, str] = Field(default_factory=dict, max_length=256)
    """Fields that the user has set over the file (what-if hardware), as given; a SoC file has none."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [p.name for p in self.processors]
        if len(set(names)) != len(names):
            raise ValueError("two processors share a name")
        if self.memory.dma_bytes_s is not None and "dma" in (*names, *self.queues):
            raise ValueError("a processor or a queue is called 'dma', as the engine of dma_bytes_s is: give it another name")
        for queue, target in self.queues.items():
            if target.split(":")[0] not in names:
                raise ValueError(f"queue {queue!r} names the processor {target!r}, which does not exist")
            self._check_cores(queue, target)
        self._check_thermal()
        if not any(p.kind == "cpu" for p in self.processors):
            raise ValueError("a SoC needs a processor of kind cpu: it submits the work")
        return self

    def _check_thermal(self) -> None:
        """What heats nodes and what trips cool exists; a trip may also name a cluster, ``cpu:prime``."""
        names = [p.name for p in self.processors]
        clusters = [f"{p.name}:{c.name}" for p in self.processors for c in p.clusters]
        heats = [p for n in self.thermal.nodes for p in n.processors if p not in OTHER_SOURCES and p not in names]
        named = [v for t in self.thermal.trips for v in (*t.processors, *t.deepest, *(t.budget.weights if t.budget else ()))]
        stranger = next((p for p in (*heats, *(v for v in named if v not in names and v not in clusters))), None)
        if stranger is not None:
            raise ValueError(f"the thermal network names the processor {stranger!r}, which does not exist")
        if self.battery is not None and self.battery.hot is not None and self.battery.hot.node not in self.thermal.points:
            raise ValueError(f"the battery's charging is limited by {self.battery.hot.node!r}, which is not a thermal node or a sensor")

    def _check_cores(self, queue: str, target: str) -> None:
        """The cores of a queue are cores of its processor (where the file lists any)."""
        try:
            wanted = cores_of(target)
        except SoCError as e:
            raise ValueError(str(e)) from e
        have = {core for c in self.by_name[target.partition(":")[0]].clusters for core in c.cores}
        absent = [core for core in wanted if core not in have]
        if absent and have:
            raise ValueError(f"queue {queue!r} names the core {absent[0]}, which {target.partition(':')[0]!r} does not have")

    @property
    def is_host(self) -> bool:
        """Whether it is this machine: it runs plans on its own kernels, and what they support decides."""
        return self.id == HOST

    @cached_property
    def by_name(self) -> dict[str, Processor]:
        """Processor by name."""
        return {p.name: p for p in self.processors}

    def narrowed(self, queues: Mapping[str, str]) -> SoC:
        """The SoC with some of its queues on other cores of their processors: queue name -> ``processor:cores``.

        Raises:
            SoCError: there is no such queue on the processor, or the processor does not have the cores.
        """
        for name, target in queues.items():
            processor = target.partition(":")[0]
            if self.queues.get(name, "").partition(":")[0] != processor:
                raise SoCError(f"{self.id} has no queue {name!r} on {processor!r}: it has {', '.join(self.queues)}")
            try:
                self._check_cores(name, target)
            except ValueError as e:
                raise SoCError(f"{self.id}: {e}") from e
        return self.model_copy(update={"queues": {**self.queues, **queues}}) if queues else self

    def link(self, a: str, b: str) -> Link | None:
        """The link between two processor kinds, in either direction."""
        return next((k for k in self.links if set(k.between) == {a, b}), None)
