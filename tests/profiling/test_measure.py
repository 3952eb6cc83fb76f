"""Measuring: what is known is not measured again, shares add up to the step, and nothing finished is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from planner.cluster.cpu import cpu_devices
from planner.cluster.types import Cluster
from planner.cost.profile import DISPATCH_KEY, Measurement, ProfileKey, ProfileTable, link_key
from planner.errors import ExecutionError
from planner.graph.op_graph import Array
from planner.model.types import LoadedModel
from planner.partition.groups import group_ops
from planner.partition.types import SegmentModel
from planner.profiling import measure as module
from planner.profiling.lanes import LaneTimes
from planner.profiling.measure import Job, jobs_for, measure
from planner.runtime.devices import LocalDevice
from planner.schedule.drafts import all_cores_device
from planner.split.propagate import AxisCache, batch_layouts, spread
from tests.partition.support import loaded

STEP_NS = 1_000_003


@pytest.fixture
def cluster() -> Cluster:
    return cpu_devices("2x1")


@pytest.fixture
def model() -> LoadedModel:
    return loaded("tiny_cnn")[0]


def all_jobs(model: LoadedModel, cluster: Cluster) -> tuple[Job, ...]:
    ways = {"batch": spread(AxisCache(model.graph), batch_layouts(model.graph, (1, 1), {}), shares=(1, 1))}
    return jobs_for(cluster, all_cores_device(cluster), ways)


class Fake:
    """Stands in for the sessions: every kernel takes as long as its name, every step ``STEP_NS``."""

    def __init__(self, fail: Sequence[int] = ()) -> None:
        self.calls: list[int] = []
        self.fail = fail

    def __call__(
        self,
        lanes: Sequence[SegmentModel],
        devices: Sequence[LocalDevice],
        feeds: Mapping[str, Array],
        *,
        seconds: float,
        kernels_of: int = 0,
    ) -> list[LaneTimes]:
        import onnx

        self.calls.append(len(lanes))
        if len(self.calls) in self.fail:
            raise ExecutionError("a lane failed", where=lanes[0].id)
        found = []
        for number, lane in enumerate(lanes):
            nodes = onnx.load_from_string(lane.model).graph.node
            found.append(
                LaneTimes(STEP_NS, 7, {n.name: 1000 + len(n.name) for n in nodes} if number == kernels_of else {})
            )
        return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(module, "time_lanes", made)
    monkeypatch.setattr(module, "handover_ns", lambda src, dst: 44_000)
    return made


def run(model: LoadedModel, cluster: Cluster, jobs: Sequence[Job], known: ProfileTable, **hooks: Any) -> Any:
    defaults: dict[str, Any] = {"progress": lambda text, done, total: None, "keep": lambda table: None}
    return measure(model, cluster, jobs, known, feeds={}, **{**defaults, **hooks})


def test_what_is_known_is_not_measured_again(model: LoadedModel, cluster: Cluster, fake: Fake) -> None:
    jobs = all_jobs(model, cluster)
    first, notes = run(model, cluster, jobs, ProfileTable())
    assert notes == ()
    assert fake.calls
    fake.calls.clear()
    kept: list[ProfileTable] = []
    again, _ = run(model, cluster, jobs, first, keep=kept.append)
    assert fake.calls == []
    assert kept == []
    assert again.entries == first.entries


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_mlp", "tiny_transformer"])
def test_costs_of_all_groups_add_up_to_the_step(name: str, cluster: Cluster, fake: Fake) -> None:
    model, _, _ = loaded(name)
    jobs = jobs_for(cluster, None, {})
    kind = cluster.devices[0].kind
    # A run's own overhead is part of the step, and none of the operators'.
    overhead = ProfileTable({ProfileKey(kind, "cpu", DISPATCH_KEY): Measurement(5_000, 1, "0")})
    table, _ = run(model, cluster, jobs, overhead)
    assert {entry.repeats for key, entry in table.entries.items() if "(" in key.key} == {7}
    total = count = 0
    for members in group_ops(model.graph, "cpu").members:
        key = module._key(model.graph, members, cluster.devices[0])
        if key is not None:
            total += table.entries[key].ns
            count += 1
    assert STEP_NS - 5_000 - 2 * count <= total <= STEP_NS - 5_000


def test_a_finished_job_is_kept_at_once(model: LoadedModel, cluster: Cluster, fake: Fake) -> None:
    jobs = all_jobs(model, cluster)
    kept: list[ProfileTable] = []

    def interrupt(text: str, done: int, total: int) -> None:
        if text == jobs[1].name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, cluster, jobs, ProfileTable(), progress=interrupt, keep=kept.append)
    # The overheads, then the first job.
    assert len(kept) == 2
    fake.calls.clear()
    table, _ = run(model, cluster, jobs, kept[-1])
    assert set(kept[-1].entries) < set(table.entries)
    whole, _ = run(model, cluster, jobs, ProfileTable())
    assert set(whole.entries) == set(table.entries)


def test_a_job_that_fails_is_a_note_and_the_others_go_on(
    model: LoadedModel, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first call is the dispatch overhead, the second the first job.
    fake = Fake(fail=(2,))
    monkeypatch.setattr(module, "time_lanes", fake)
    monkeypatch.setattr(module, "handover_ns", lambda src, dst: 44_000)
    jobs = all_jobs(model, cluster)
    table, notes = run(model, cluster, jobs, ProfileTable())
    assert len(notes) == 1
    assert jobs[0].name in notes[0]
    assert "estimated" in notes[0]
    assert len(fake.calls) > 2
    assert any(key.kind == all_cores_device(cluster).kind for key in table.entries)


def test_lanes_of_one_way_run_together_unless_they_share_cores(model: LoadedModel, fake: Fake) -> None:
    apart = cpu_devices("2x1")
    ways = all_jobs(model, apart)[-1]
    run(model, apart, (ways,), ProfileTable())
    expected = 1 if apart.devices[0].shared else 2
    assert max(fake.calls) == expected
    fake.calls.clear()
    crowded = cpu_devices("64x1")
    assert crowded.devices[0].shared
    two = Cluster(
        crowded.devices[:2], tuple(link for link in crowded.links if {link.src, link.dst} <= {"cpu:0", "cpu:1"})
    )
    run(model, two, (Job("shared", ways.splits, two.devices),), ProfileTable())
    assert max(fake.calls) == 1


def test_handovers_between_devices_are_measured_once_a_pair_of_kinds(
    model: LoadedModel, cluster: Cluster, fake: Fake
) -> None:
    table, _ = run(model, cluster, (), ProfileTable())
    kind = cluster.devices[0].kind
    links = {key: entry.ns for key, entry in table.entries.items() if key.key.startswith("link:")}
    expected = {} if cluster.devices[0].shared else {ProfileKey(kind, "cpu", link_key(kind)): 44_000}
    assert links == expected


def test_jobs_name_each_kind_once_all_cores_and_each_way(model: LoadedModel, cluster: Cluster) -> None:
    jobs = all_jobs(model, cluster)
    assert [job.name for job in jobs] == ["unsplit on cpu:0", "unsplit on all cores", "split by batch"]
    assert [len(job.devices) for job in jobs] == [1, 1, 2]


def test_progress_counts_every_job(model: LoadedModel, cluster: Cluster, fake: Fake) -> None:
    seen: list[tuple[int, int]] = []
    jobs = all_jobs(model, cluster)
    run(model, cluster, jobs, ProfileTable(), progress=lambda text, done, total: seen.append((done, total)))
    assert seen == [(number, len(jobs) + 1) for number in range(len(jobs) + 2)]


def test_really_measuring_a_small_model_fills_the_table(
    model: LoadedModel, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS_A_JOB", 0.02)
    jobs = all_jobs(model, cluster)
    table, notes = run(model, cluster, jobs, ProfileTable())
    assert notes == ()
    assert sum(entry.ns for key, entry in table.entries.items() if "Conv" in key.key) > 0
    again, _ = run(model, cluster, jobs, table)
    assert again.entries == table.entries
