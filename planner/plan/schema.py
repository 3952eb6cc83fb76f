"""The plan: the versioned contract between planner and launcher, schema ``fddps/plan/v1``.

The planner writes it, the launcher executes it and decides nothing. Whatever writes the same schema, runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_ID = "fddps/plan/v1"

# Exact in every JSON reader, and thousands of them add up within 64 bits: 104 days, 8 PiB.
_LARGEST = 2**53
Ns = Annotated[int, Field(ge=0, le=_LARGEST)]
Bytes = Annotated[int, Field(ge=0, le=_LARGEST)]


class _Record(BaseModel):
    """Frozen; unknown keys are errors, so that a typo in a hand-edited plan is found."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Tool(_Record):
    """What wrote the plan."""

    name: str = "fddps"
    version: str


class ModelRef(_Record):
    """Which model the plan is for.

    ``digest`` is over structure, attributes, shapes, small constants, names and sizes of weights; ``file_sha256`` over
    the whole model file, only where it was asked for.
    """

    path: str
    digest: str
    simplification: int
    file_sha256: str = ""
    batch: int | None = None
    batch_axes: dict[str, int] = {}


class InputSpec(_Record):
    """Type and shape that one graph input is planned for."""

    dtype: str
    shape: tuple[Annotated[int, Field(ge=0, le=_LARGEST)], ...]


class DeviceSpec(_Record):
    """A device of the plan; see ``cluster.types.Device``.

    ``members``: the devices that this one spans (all cores in one session).
    """

    name: str
    kind: str
    type: Literal["cpu", "cuda"]
    memory_bytes: Bytes
    node: str = "node0"
    cores: tuple[int, ...] = ()
    index: int = 0
    uuid: str = ""
    shared: bool = False
    members: tuple[str, ...] = ()


class LinkSpec(_Record):
    """A directed link of the plan; see ``cluster.types.Link``."""

    src: str
    dst: str
    latency_ns: Ns
    bytes_per_s: Annotated[int, Field(ge=0, le=_LARGEST)]
    channel: str = ""
    kind: str = ""


class ClusterSpec(_Record):
    """The machine that the plan is for."""

    nodes: tuple[str, ...]
    devices: tuple[DeviceSpec, ...]
    links: tuple[LinkSpec, ...]


class CostProvenance(_Record):
    """Where the costs come from."""

    profiles: dict[str, str] = {}
    measured: Annotated[int, Field(ge=0)] = 0
    estimated: Annotated[int, Field(ge=0)] = 0
    onnxruntime: str = ""


class Split(_Record):
    """One operator split along one axis; an operator may have two (the second splits each shard of the first)."""

    op: str
    axis: str
    sizes: tuple[Annotated[int, Field(gt=0)], ...]


class Segment(_Record):
    """A convex one-device set of tasks that one session runs; tasks in execution order.

    ``tasks`` are names of operators of the split graph. Weights and constants are not listed; they follow their
    consumers.
    """

    id: str
    compute_ns: Ns
    tasks: tuple[str, ...]


class DeviceQueue(_Record):
    """What one device executes, in order."""

    device: str
    segments: tuple[Segment, ...]


class TransferSpec(_Record):
    """One tensor that leaves its segment for a segment on another device; sent once per consuming device.

    ``src`` is a segment id; ``dst`` the first consuming segment on the receiving device.
    """

    tensor: str
    src: str
    dst: str
    nbytes: Bytes


class State(_Record):
    """A training state: an input that the step's output replaces."""

    input: str
    output: str


class Candidate(_Record):
    """What another planner's plan was predicted to take; ``infeasible`` says why there is none."""

    planner: str
    step_ns: Ns | None = None
    infeasible: str = ""


class DevicePrediction(_Record):
    """Predicted load of one device."""

    device: str
    busy_ns: Ns
    peak_bytes: Bytes


class LowerBounds(_Record):
    """Lower bounds of the step, by the plan's own costs.

    ``split_ns`` holds for every schedule of the plan's split graph. ``any_ns`` holds for any split where costs are
    estimated from data sheets; where some were measured, an untried split might go below it.
    """

    split_ns: Ns
    any_ns: Ns


class Predictions(_Record):
    """What the simulator says the plan will do."""

    step_ns: Ns
    one_device_step_ns: Ns | None = None
    transfer_ns: Ns
    transfer_bytes: Bytes
    devices: tuple[DevicePrediction, ...]
    critical_path: tuple[str, ...]
    lower_bounds: LowerBounds
    candidates: tuple[Candidate, ...]


class Plan(_Record):
    """A whole plan."""

    schema_id: Literal["fddps/plan/v1"] = Field(default="fddps/plan/v1", alias="schema")
    tool: Tool
    command: str
    planner: str
    effort: str = "normal"
    seed: int = 0
    why: str
    notes: tuple[str, ...] = ()
    model: ModelRef
    inputs: dict[str, InputSpec]
    cluster: ClusterSpec
    costs: CostProvenance
    dispatch_ns: Ns = 0
    splits: tuple[Split, ...]
    devices: tuple[DeviceQueue, ...]
    transfers: tuple[TransferSpec, ...]
    states: tuple[State, ...] = ()
    predictions: Predictions

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)
