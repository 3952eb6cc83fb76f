"""Planning from Python, and what the command line shares with it: devices, profiles and the cache by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from planner.cluster.cpu import cpu_devices
from planner.cluster.gpu import gpu_devices
from planner.cluster.load import load_cluster
from planner.cluster.sheets import load_sheets
from planner.cluster.types import Cluster
from planner.cost.profile import ProfileTable, read_profile
from planner.cost_cache import Note, ProfileStore, default_cache
from planner.errors import ProfileError, UsageError
from planner.graph.op_graph import Array
from planner.model.options import LoadOptions
from planner.parameters import checked, checked_arrays, named_as_parameters
from planner.pipeline import Compared, compare_planners, make_plan
from planner.plan.schema import Plan
from planner.profiling.recorded import RecordedRunner
from planner.request import Outcome, Request
from planner.resources import data_path
from planner.runtime.feeds import load_npz
from planner.runtime.values import ort_version
from planner.schedule.wishes import Wishes
from planner.tuning import Round, Tuned, tune

Progress = Callable[[str, int, int], None]

GENERIC_CPU: Final = "cpu-generic"


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Which devices to plan for, as a user says it.

    Attributes:
        gpus: ``4`` or ``0,2``.
        cpus: ``2`` or ``2x1``.
        cluster: a cluster description.
        profile: a device kind of ``profiles/``, or a profile file; nothing is measured then.
        link: kind of link between GPUs, in place of the usual one.
        memory_bytes: most that a plan may use on any one device; None for all of it. With ``cpus`` and ``profile`` it
            is what the devices have, wherever they are.
        max_memory: device -> most that a plan may use on it.
    """

    gpus: str | None = None
    cpus: str | None = None
    cluster: Path | None = None
    profile: str | None = None
    link: str | None = None
    memory_bytes: int | None = None
    max_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """Devices and what is known of their costs.

    Attributes:
        cluster: the devices.
        profile: measured costs from a profile file; empty without one.
        measure: whether what is missing should be measured here.
        profile_names: name -> digest of the profile in use, for the plan's provenance.
    """

    cluster: Cluster
    profile: ProfileTable = field(default_factory=ProfileTable)
    measure: bool = True
    profile_names: Mapping[str, str] = field(default_factory=dict)


def find_hardware(choice: DeviceChoice) -> Hardware:
    """The devices that the user named.

    Raises:
        UsageError: unless exactly one of ``gpus``, ``cpus`` and ``cluster`` is given.
        ClusterError: if a device is not there or not known.
        ProfileError: if the profile cannot be read.
    """
    given = [name for name in ("gpus", "cpus", "cluster") if getattr(choice, name) is not None]
    if len(given) != 1:
        raise UsageError(
            f"{' and '.join(f'--{name}' for name in given)} together" if given else "no devices",
            expected="exactly one of --gpus, --cpus and --cluster",
            next_step="for example --cpus 2, or --gpus 4",
        )
    if choice.link is not None and choice.gpus is None:
        raise UsageError("it goes with --gpus only", where="--link", next_step="leave it out")
    kind, table, names = _profile(choice)
    cluster = _cluster(choice, kind, table)
    if choice.memory_bytes is not None:
        limit = choice.memory_bytes
        # CPU devices planned from a profile may be anywhere: then what is here is no limit.
        here = choice.cpus is None or choice.profile is None
        devices = tuple(replace(d, memory_bytes=min(d.memory_bytes, limit) if here else limit) for d in cluster.devices)
        cluster = Cluster(devices, cluster.links)
    unknown = [name for name in choice.max_memory if all(name != device.name for device in cluster.devices)]
    if unknown:
        known = ", ".join(device.name for device in cluster.devices)
        raise UsageError(f"no device '{unknown[0]}'", where="--max-memory", expected=f"one of {known}")
    if choice.max_memory:
        most = {d.name: min(d.memory_bytes, choice.max_memory.get(d.name, d.memory_bytes)) for d in cluster.devices}
        cluster = Cluster(tuple(replace(d, memory_bytes=most[d.name]) for d in cluster.devices), cluster.links)
    # The kinds of a cluster description are data sheets: there may be nothing here to measure.
    measure = choice.profile is None and choice.cluster is None
    return Hardware(cluster, table, measure, names)


def _profile(choice: DeviceChoice) -> tuple[str | None, ProfileTable, dict[str, str]]:
    """(device kind, measured costs, name -> digest)."""
    if choice.profile is None:
        return None, ProfileTable(), {}
    sheets = load_sheets()
    if choice.profile in sheets:
        if choice.cluster is not None:
            raise UsageError(
                f"'{choice.profile}' is a device kind, and the cluster names its own",
                where="--profile",
                expected="a profile file with --cluster",
                next_step="leave --profile out",
            )
        text = (data_path("profiles") / f"{choice.profile}.yaml").read_bytes()
        return choice.profile, ProfileTable(), {choice.profile: f"sha256:{hashlib.sha256(text).hexdigest()}"}
    path = Path(choice.profile)
    if not path.exists():
        raise ProfileError(
            f"'{choice.profile}' is neither a profile file nor a known device kind",
            where="--profile",
            expected=f"a file, or one of {', '.join(sorted(sheets))}",
        )
    table = read_profile(path)
    return None, table, {path.name: table.digest()}


def _cluster(choice: DeviceChoice, kind: str | None, table: ProfileTable) -> Cluster:
    if choice.cluster is not None:
        return load_cluster(choice.cluster)
    if choice.cpus is not None:
        # A profile and devices x cores say all: nothing of this machine is looked at.
        anywhere = choice.profile is not None and "x" in choice.cpus
        cluster = cpu_devices(choice.cpus, anywhere=anywhere)
        return cluster if choice.profile is None else _cpu_kinds(cluster, kind, table, anywhere=anywhere)
    if choice.profile is not None and kind is None:
        kind = _only_gpu_kind(table)
    return gpu_devices(choice.gpus or "", kind, choice.link)


def _cpu_kinds(cluster: Cluster, kind: str | None, table: ProfileTable, *, anywhere: bool) -> Cluster:
    """CPU devices of the kind that the profile is about, so that the plan does not depend on this machine's name.

    Args:
        cluster: devices of this machine's kind.
        kind: a device kind that was given in place of a profile file.
        table: the profile.
        anywhere: whether the plan is to be the same on every machine: then this one's kind does not decide.

    Raises:
        UsageError: if the profile is about several kinds, and nothing says which.
    """
    if kind is not None and load_sheets()[kind].type != "cpu":
        raise UsageError(f"'{kind}' is a GPU", where="--profile", next_step="use --gpus, or cpu-generic with --cpus")
    known = dict.fromkeys(key.kind for key, _ in table.sorted_entries() if key.provider == "cpu")
    devices = []
    for device in cluster.devices:
        suffix = f"-{len(device.cores)}c"
        same = [name for name in known if name.endswith(suffix)]
        if kind is not None:
            device = replace(device, kind=f"{kind}{suffix}")
        elif anywhere or device.kind not in known:
            if len(same) > 1:
                raise UsageError(
                    f"the profile has costs of several kinds of CPU: {', '.join(same)}",
                    where="--profile",
                    expected="costs of one kind of device with these cores",
                    next_step="keep the lines of one kind",
                )
            device = replace(device, kind=same[0] if same else f"{GENERIC_CPU}{suffix}" if anywhere else device.kind)
        devices.append(device)
    return Cluster(tuple(devices), cluster.links)


def _only_gpu_kind(table: ProfileTable) -> str | None:
    """The GPU kind that a profile is about, if there is just one with a data sheet: no hardware is needed then."""
    kinds = dict.fromkeys(key.kind for key, _ in table.sorted_entries() if key.provider == "cuda")
    named = [kind for kind in kinds if kind in load_sheets()]
    return named[0] if len(named) == 1 else None


def plan(
    model: str | os.PathLike[str],
    *,
    gpus: str | int | None = None,
    cpus: str | int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    link: str | None = None,
    planner: str = "auto",
    effort: str = "normal",
    seed: int = 0,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int | None = None,
    batch_axes: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | Mapping[str, Array] | None = None,
    allow_outside: bool = False,
    memory_bytes: int | None = None,
    max_memory: Mapping[str, int] | None = None,
    pins: Sequence[tuple[str, str]] = (),
    keep_together: Sequence[str] = (),
    cache: str | os.PathLike[str] | None = None,
    hash_file: bool = False,
    plan_dir: str | os.PathLike[str] = ".",
) -> Plan:
    """Plan a model; what ``fddps plan`` does, without writing a file.

    Args:
        model: the ONNX file.
        gpus: as ``--gpus``: ``4`` or ``"0,2"``.
        cpus: as ``--cpus``: ``2`` or ``"2x1"``.
        cluster: a cluster description file.
        profile: a device kind, or a profile file; then nothing is measured.
        link: kind of link between GPUs.
        planner: ``auto`` for the best of all.
        effort: ``quick``, ``normal`` or ``thorough``.
        seed: of what ``thorough`` effort draws at random.
        input_shapes: whole shapes of inputs by name.
        batch: batch size.
        batch_axes: dimension of an input that is the batch, where it is not 0; -1 for an input without one.
        inputs: arrays by name, or an ``.npz`` file: shapes and values where random ones fail.
        allow_outside: whether external data may lie outside the model's folder.
        memory_bytes: most that the plan may use on one device; with ``cpus`` and ``profile`` what it has.
        max_memory: device -> most that the plan may use on it.
        pins: (regular expression, device): operators whose names match run there.
        keep_together: regular expressions: operators whose names match one run on one device.
        cache: file of measured costs; by default the user's.
        hash_file: whether the plan should have the SHA-256 of the ``.onnx`` file (not of weights beside it).
        plan_dir: where the plan will lie: the model's path in it is relative to this folder.

    Returns:
        The plan. Write it with ``planner.plan.files.write_plan``, or run it with ``planner.launcher.PlannedSession``.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    choice = DeviceChoice(
        gpus=None if gpus is None else str(gpus),
        cpus=None if cpus is None else str(cpus),
        cluster=None if cluster is None else Path(cluster),
        profile=None if profile is None else os.fspath(profile),
        link=link,
        memory_bytes=checked("memory_bytes", memory_bytes),
        max_memory=checked("max_memory", max_memory or {}),
    )
    load = LoadOptions(
        input_shapes=checked("input_shapes", input_shapes or {}),
        batch=batch,
        batch_axes=checked("batch_axes", batch_axes or {}),
        feeds=_feeds(inputs),
        allow_outside=allow_outside,
    )
    request = Request(Path(model), Cluster((), ()), load=load, planner=planner, effort=effort, seed=seed)
    command = f"planner.plan('{Path(model).name}')"
    wishes = Wishes(checked("pins", pins), checked("keep_together", keep_together))
    request = replace(request, command=command, hash_file=hash_file, plan_dir=Path(plan_dir), wishes=wishes)
    with named_as_parameters():
        return run_request(request, find_hardware(choice), None if cache is None else Path(cache)).plan


def _feeds(inputs: str | os.PathLike[str] | Mapping[str, Array] | None) -> Mapping[str, Array] | None:
    if inputs is None:
        return None
    if isinstance(inputs, Mapping):
        return cast("Mapping[str, Array]", checked_arrays("inputs", inputs))
    return load_npz(os.fspath(inputs))


def run_request(request: Request, hardware: Hardware, cache: Path | None = None) -> Outcome:
    """Plan, with a recorded run where sizes depend on data, and measured costs kept in a cache.

    Args:
        request: what to plan; its cluster and profile are replaced by the hardware's.
        hardware: devices and their costs.
        cache: file of measured costs; by default the user's; not looked at where nothing is to be measured.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    said: list[str] = []
    request = _with_hardware(request, hardware, cache, said.append)
    version_note = request.profile.version_note(ort_version())
    outcome = make_plan(request)
    if hardware.profile.entries and not outcome.plan.costs.measured:
        useless = (
            "the profile has none of this plan's operators at these shapes on these devices: all its costs are "
            "estimated; measure them with fddps profile and the same --batch and devices"
        )
        plan = outcome.plan.model_copy(update={"notes": (*outcome.plan.notes, useless)})
        outcome = replace(outcome, plan=plan, notes=(useless, *outcome.notes))
    return replace(outcome, notes=(*([version_note] if version_note else []), *outcome.notes, *said))


def compare_request(
    request: Request, hardware: Hardware, names: Sequence[str], cache: Path | None = None
) -> tuple[list[Compared], tuple[str, ...]]:
    """Each planner's plan by the same costs: :func:`planner.pipeline.compare_planners`; arguments as run_request.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    said: list[str] = []
    found, notes = compare_planners(_with_hardware(request, hardware, cache, said.append), names)
    return found, (*said, *notes)


def tune_request(
    request: Request,
    hardware: Hardware,
    cache: Path | None = None,
    *,
    rounds: int,
    time_limit_s: float | None = None,
    on_round: Callable[[Round, Plan], None] = lambda found, best: None,
) -> Tuned:
    """Plan, run, and plan again: :func:`planner.tuning.tune`; arguments as there and as run_request.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    said: list[str] = []
    request = _with_hardware(request, hardware, cache, said.append)
    tuned = tune(request, rounds=rounds, time_limit_s=time_limit_s, on_round=on_round)
    return replace(tuned, notes=(*said, *tuned.notes))


def _with_hardware(request: Request, hardware: Hardware, cache: Path | None, note: Note) -> Request:
    store = ProfileStore(cache or default_cache(), note)
    return replace(
        request,
        cluster=hardware.cluster,
        measure=hardware.measure,
        profile=store.read() if hardware.measure else hardware.profile,
        load=replace(request.load, recorded_run=RecordedRunner(note)),
        profile_names=hardware.profile_names,
        keep=store.keep if hardware.measure else request.keep,
    )


def measure_request(request: Request, store: ProfileStore) -> tuple[ProfileTable, tuple[str, ...]]:
    """Measure what a profile file lacks for a model on a cluster, and keep it there.

    Args:
        request: model, cluster and how to load the model.
        store: the profile file.

    Returns:
        The file's table, and notes, one line each.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    said: list[str] = []
    load = replace(request.load, recorded_run=RecordedRunner(said.append))
    request = replace(request, load=load, profile=store.read(), measure=True, keep=store.keep)
    # A whole plan is made and thrown away: what it measures of the candidates that nearly win belongs in the profile.
    outcome = make_plan(request)
    store.keep(outcome.profile)
    return outcome.profile, (*said, *outcome.notes)
