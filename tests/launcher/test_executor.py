from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest

from planner.errors import ExecutionError, InputError
from planner.launcher import executor
from planner.launcher.planned_session import PlannedSession
from planner.launcher.routes import routes_by_device
from planner.runtime.devices import LocalDevices
from planner.runtime.session import SegmentSession
from tests.launcher.helpers import chain, cpus, info, node, partitioned, ramp, segment

ROOT = Path(__file__).resolve().parents[2]


def worker_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fddps-")]


@pytest.fixture(autouse=True)
def _no_thread_left():
    yield
    gc.collect()
    assert worker_threads() == []


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_chain_over_devices_gives_the_value_of_the_whole(devices: int) -> None:
    with PlannedSession.from_partition(chain(7, devices), cpus(devices)) as session:
        for factor in (1, 2, 3):
            (got,) = session.run(None, {"x": ramp() * factor})
            np.testing.assert_array_equal(got, ramp() * factor * 8)


def test_short_steps_of_one_device_run_in_the_calling_thread_which_keeps_its_cores() -> None:
    before = os.sched_getaffinity(0)
    with PlannedSession.from_partition(chain(3, 1), cpus(1)) as session:
        session.run(None, {"x": ramp()})  # by the worker: nobody knows yet how long it takes
        seen = []
        worker = session._executor._workers[0]
        inner = worker._sessions[0].run

        def run(values: Any, options: Any) -> Any:
            seen.append((threading.current_thread(), os.sched_getaffinity(0)))
            return inner(values, options)

        worker._sessions[0].run = run  # type: ignore[method-assign]
        (got,) = session.run(None, {"x": ramp() * 2})
        np.testing.assert_array_equal(got, ramp() * 8)
        assert seen == [(threading.current_thread(), set(worker.device.cores[:1]))]
        assert os.sched_getaffinity(0) == before


def test_inputs_that_are_no_plain_arrays_go_the_long_way_and_give_the_same() -> None:
    with PlannedSession.from_partition(chain(3), cpus(2)) as session:
        plain = session.run(None, {"x": ramp()})[0]
        wide = np.zeros((*ramp().shape, 2), np.float32)
        wide[..., 0] = ramp()
        for value in (wide[..., 0], ramp().astype(">f4"), ort.OrtValue.ortvalue_from_numpy(ramp())):
            np.testing.assert_array_equal(session.run(None, {"x": value})[0], plain)


def test_results_of_one_run_survive_the_next() -> None:
    with PlannedSession.from_partition(chain(3), cpus(2)) as session:
        (first,) = session.run(None, {"x": ramp()})
        session.run(None, {"x": ramp() * 9})
        np.testing.assert_array_equal(first, ramp() * 4)


def test_diamond_joins_values_of_several_devices() -> None:
    x, a, b, c, y = (info(name) for name in "xabcy")
    model = partitioned(
        [
            segment("s0", "cpu:0", [node("Neg", ["x"], ["a"])], [x], [a]),
            segment("s1", "cpu:1", [node("Mul", ["a", "x"], ["b"])], [a, x], [b]),
            segment("s2", "cpu:2", [node("Abs", ["a"], ["c"])], [a], [c]),
            segment("s3", "cpu:0", [node("Sub", ["b", "c"], ["y"])], [b, c], [y]),
        ],
        [x],
        [y],
    )
    with PlannedSession.from_partition(model, cpus(3)) as session:
        for seed in range(20):
            feed = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
            np.testing.assert_allclose(session.run(None, {"x": feed})[0], -feed * feed - np.abs(feed), rtol=1e-6)
        assert [timing.segment for timing in session.timings] == ["s0", "s1", "s2", "s3"]
        assert all(timing.end_ns > timing.start_ns for timing in session.timings)
        by_id = {timing.segment: timing for timing in session.timings}
        assert by_id["s3"].start_ns >= max(by_id["s1"].end_ns, by_id["s2"].end_ns)


def test_outputs_can_pass_through_be_weights_inner_values_and_come_in_any_order() -> None:
    x, a, y = (info(name) for name in "xay")
    table = np.full(3, 7, dtype=np.float32)
    model = partitioned(
        [
            segment("s0", "cpu:0", [node("Neg", ["x"], ["a"])], [x], [a]),
            segment("s1", "cpu:1", [node("Neg", ["a"], ["y"])], [a], [y]),
        ],
        [x],
        [y, a, info("p"), info("w", (3,))],
        direct={"p": "x"},
        constants={"w": table},
    )
    with PlannedSession.from_partition(model, cpus(2)) as session:
        feed = ramp()
        y_, a_, p_, w_ = session.run(None, {"x": feed})
        np.testing.assert_array_equal(y_, feed)
        np.testing.assert_array_equal(a_, -feed)
        np.testing.assert_array_equal(p_, feed)
        np.testing.assert_array_equal(w_, table)
        p_[:] = 99
        w_[:] = 99
        assert feed.tolist() == [0, 1, 2, 3] and table.tolist() == [7, 7, 7]
        again = session.run(["w", "a", "a", "p"], {"x": ort.OrtValue.ortvalue_from_numpy(feed)})
        np.testing.assert_array_equal(again[0], table)
        np.testing.assert_array_equal(again[1], again[2])
        np.testing.assert_array_equal(again[3], feed)
        with pytest.raises(InputError, match="no output 'nope'"):
            session.run(["nope"], {"x": feed})


def test_a_plan_without_segments_runs() -> None:
    model = partitioned([], [info("x")], [info("y")], direct={"y": "x"})
    with PlannedSession.from_partition(model, cpus(1)) as session:
        np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp())


def test_large_weights_are_fed_from_memory_and_shared_by_key() -> None:
    table = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x, a, y = info("x", (2, 64)), info("a", (2, 64)), info("y", (2, 64))
    loads = []
    segments = []
    for ident, device, src, dst in (("s0", "cpu:0", x, a), ("s1", "cpu:1", a, y)):
        made = segment(
            ident, device, [node("MatMul", [src.name, "w"], [dst.name])], [src], [dst], {"w": table}, {"w": "k"}
        )
        handle = made.weights["w"]

        def load(ident=ident):
            loads.append(ident)
            return table

        segments.append(replace(made, weights={"w": replace(handle, load=load)}))
    with PlannedSession.from_partition(partitioned(segments, [x], [y]), cpus(2)) as session:
        feed = np.ones((2, 64), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": feed})[0], feed @ table @ table, rtol=1e-3, atol=1e-4)
        assert all(table.nbytes <= nbytes < table.nbytes + 1000 for nbytes in session.weight_bytes.values())
    assert len(loads) == 1


def test_bfloat16_weights_inputs_and_outputs() -> None:
    table = np.arange(4).astype(ml_dtypes.bfloat16)
    x, y = info("x", (4,), "bfloat16"), info("y", (4,), "bfloat16")
    a = info("a")
    model = partitioned(
        [
            segment("s0", "cpu:0", [node("Cast", ["x"], ["a"], to=1)], [x], [a]),
            segment(
                "s1",
                "cpu:1",
                [
                    node("Cast", ["w"], ["wf"], to=1),
                    node("Add", ["a", "wf"], ["s"]),
                    node("Cast", ["s"], ["y"], to=16),
                ],
                [a],
                [y],
                {"w": table},
            ),
        ],
        [x],
        [y],
    )
    with PlannedSession.from_partition(model, cpus(2)) as session:
        (got,) = session.run(None, {"x": table})
        assert got.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(got.astype(np.float32), [0, 2, 4, 6])
        assert session.get_inputs()[0].type == "tensor(bfloat16)"


def test_strings_cross_devices_beside_numbers() -> None:
    s, t, n, m, y = info("s", (2,), "string"), info("t", (2,), "string"), info("n"), info("m"), info("y")
    model = partitioned(
        [
            segment("s0", "cpu:0", [node("Identity", ["s"], ["t"]), node("Neg", ["n"], ["m"])], [s, n], [t, m]),
            segment(
                "s1", "cpu:1", [node("Identity", ["t"], ["u"]), node("Neg", ["m"], ["y"])], [t, m],
                [info("u", (2,), "string"), y],
            ),
        ],
        [s, n],
        [info("u", (2,), "string"), y],
    )  # fmt: skip
    with PlannedSession.from_partition(model, cpus(2)) as session:
        for text in (np.array(["a", "äöü" * 50]), np.array(["a", "äöü" * 50], dtype=object)):
            u, got = session.run(None, {"s": text, "n": ramp()})
            assert u.tolist() == ["a", "äöü" * 50]
            np.testing.assert_array_equal(got, ramp())


def test_shapes_that_depend_on_data_and_empty_tensors() -> None:
    x, i, y = info("x"), info("i", (1, None), "int64"), info("y", (1, None), "int64")
    model = partitioned(
        [
            segment("s0", "cpu:0", [node("NonZero", ["x"], ["i"])], [x], [i]),
            segment("s1", "cpu:1", [node("Add", ["i", "i"], ["y"])], [i], [y]),
        ],
        [x],
        [y],
    )
    with PlannedSession.from_partition(model, cpus(2)) as session:
        assert session.run(None, {"x": ramp()})[0].tolist() == [[2, 4, 6]]
        assert session.run(None, {"x": np.zeros(4, np.float32)})[0].shape == (1, 0)
        assert session.run(None, {"x": ramp() + 1})[0].tolist() == [[0, 2, 4, 6]]


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "no value for 'x'"),
        ({"x": ramp(), "z": ramp()}, "no input 'z'"),
        ({"x": ramp().astype(np.float64)}, "element type float64; expected float32"),
        ({"x": ramp(5)}, "shape 5; expected 4"),
        ({"x": ramp().reshape(2, 2)}, "shape 2x2; expected 4"),
        ({"x": [0.0, 1.0]}, "a list; expected a numpy array"),
    ],
)
def test_wrong_feeds_are_named_in_one_line(feeds: dict, message: str) -> None:
    with PlannedSession.from_partition(chain(2), cpus(2)) as session:
        with pytest.raises(InputError) as caught:
            session.run(None, feeds)
        assert message in str(caught.value) and "\n" not in str(caught.value)
        np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 3)


def test_a_feed_that_is_not_contiguous_is_read_right() -> None:
    with PlannedSession.from_partition(chain(2), cpus(2)) as session:
        np.testing.assert_array_equal(session.run(None, {"x": np.repeat(ramp(), 2)[::2]})[0], ramp() * 3)


def failing_model():
    x, i, a, b, y = info("x"), info("i", (2,), "int64"), info("a", (2,)), info("b"), info("y", (2,))
    return partitioned(
        [
            segment("s0", "cpu:0", [node("Gather", ["x", "i"], ["a"])], [x, i], [a]),
            segment("s1", "cpu:1", [node("Neg", ["x"], ["b"])], [x], [b]),
            segment("s2", "cpu:1", [node("Neg", ["a"], ["y"])], [a], [y]),
        ],
        [x, i],
        [b, y],
    )


def test_a_failing_operator_is_named_and_the_session_goes_on() -> None:
    with PlannedSession.from_partition(failing_model(), cpus(2)) as session:
        good, bad = np.array([3, 0]), np.array([3, 400])
        for _ in range(5):
            with pytest.raises(ExecutionError) as caught:
                session.run(None, {"x": ramp(), "i": bad})
            text = str(caught.value)
            assert text.startswith("segment s0 on cpu:0: failed in Gather 'gather_a'") and "\n" not in text
            assert session.run(["y"], {"x": ramp(), "i": good})[0].tolist() == [-3, 0]


def test_a_segment_that_cannot_be_created_is_named() -> None:
    model = partitioned(
        [
            *chain(1).segments,
            segment("broken", "cpu:1", [node("NoSuchOp", ["v0"], ["y"])], [info("v0")], [info("y")]),
        ],
        [info("x")],
        [info("y")],
    )
    with pytest.raises(
        ExecutionError, match=r"segment broken on cpu:1: could not be created: .*NoSuchOp.*custom operators"
    ):
        PlannedSession.from_partition(model, cpus(2))


def test_out_of_memory_names_need_and_available() -> None:
    x, y = info("x", (2,), "int64"), info("y", (None, None))
    model = partitioned([segment("big", "cpu:0", [node("ConstantOfShape", ["x"], ["y"])], [x], [y])], [x], [y])
    with (
        PlannedSession.from_partition(model, cpus(1)) as session,
        pytest.raises(ExecutionError, match=r"segment big on cpu:0: out of memory: needs .*, .* available"),
    ):
        session.run(None, {"x": np.array([1 << 24, 1 << 24])})


def test_concurrent_callers_take_turns() -> None:
    with PlannedSession.from_partition(chain(5), cpus(2)) as session:
        wrong = []

        def call(factor: int) -> None:
            for _ in range(20):
                if not np.array_equal(session.run(None, {"x": ramp() * factor})[0], ramp() * factor * 6):
                    wrong.append(factor)

        threads = [threading.Thread(target=call, args=(factor,)) for factor in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_close_can_be_repeated_and_ends_use() -> None:
    session = PlannedSession.from_partition(chain(2), cpus(2))
    session.close()
    session.close()
    with pytest.raises(ExecutionError, match="closed"):
        session.run(None, {"x": ramp()})


def test_a_forgotten_session_is_collected_with_its_threads() -> None:
    session = PlannedSession.from_partition(chain(2), cpus(2))
    seen = weakref.ref(session)
    del session
    gc.collect()
    assert seen() is None and worker_threads() == []


def run_script(body: str, **kwargs) -> subprocess.CompletedProcess:
    head = "from planner.launcher.planned_session import PlannedSession\nfrom tests.launcher.helpers import *\n"
    script = head + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


def test_an_unclosed_session_does_not_keep_the_interpreter() -> None:
    done = run_script(
        """
        session = PlannedSession.from_partition(chain(4), cpus(2))
        session.run(None, {"x": ramp()})
        print("ran")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_ctrl_c_stops_a_step_and_leaves_a_usable_session() -> None:
    done = run_script(
        """
        import signal, threading, os
        import numpy as np
        n = info("n", (), "int64")
        body_in = [helper.make_tensor_value_info("it", 7, []), helper.make_tensor_value_info("c", 9, []),
                   helper.make_tensor_value_info("acc", 1, [4])]
        body_out = [helper.make_tensor_value_info("c2", 9, []), helper.make_tensor_value_info("acc2", 1, [4])]
        body = helper.make_graph([node("Identity", ["c"], ["c2"]), node("Neg", ["acc"], ["acc2"])], "b",
                                 body_in, body_out)
        model = partitioned([
            segment("loop", "cpu:0", [node("Loop", ["n", "", "x"], ["a"], body=body)], [n, info("x")], [info("a")]),
            segment("next", "cpu:1", [node("Neg", ["a"], ["y"])], [info("a")], [info("y")]),
        ], [n, info("x")], [info("y")])
        with PlannedSession.from_partition(model, cpus(2)) as session:
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                session.run(None, {"n": np.array(1 << 60), "x": ramp()})
            except KeyboardInterrupt:
                print("interrupted")
            print(session.run(None, {"n": np.array(2), "x": ramp()})[0].tolist())
        print([t.name for t in threading.enumerate()])
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "interrupted\n[-0.0, -1.0, -2.0, -3.0]\n['MainThread']\n"


@pytest.mark.parametrize("lost", [0, 1])
def test_ctrl_c_that_takes_a_report_away_does_not_wait_for_it(lost: int) -> None:
    """CPython looks for signals when ``get`` has returned: what it returned is gone then."""

    class Reports:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.seen = 0

        def get(self, timeout: float | None = None) -> Any:
            report = self.inner.get(timeout=20)
            self.seen += 1
            if self.seen == lost + 1:
                raise KeyboardInterrupt
            return report

    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        real = session._executor._reports
        session._executor._reports = Reports(real)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": ramp()})
        session._executor._reports = real
        first = session.run(None, {"x": ramp()})[0]
        np.testing.assert_array_equal(first, session.run(None, {"x": ramp()})[0])


def test_memory_of_a_step_is_given_back_after_it() -> None:
    with PlannedSession.from_partition(chain(3), cpus(2)) as session:
        feed = ramp()
        seen = weakref.ref(feed)
        session.run(None, {"x": feed})
        del feed
        gc.collect()
        assert seen() is None


def test_a_value_is_sent_once_to_a_device_with_several_readers() -> None:
    x, a = info("x"), info("a")
    readers = [segment(f"r{i}", "cpu:1", [node("Neg", ["a"], [f"y{i}"])], [a], [info(f"y{i}")]) for i in range(3)]
    make = segment("s0", "cpu:0", [node("Neg", ["x"], ["a"])], [x], [a])
    model = partitioned([make, *readers], [x], [info(f"y{i}") for i in range(3)])
    assert routes_by_device(model)["cpu:0"][0].sends == ((1, ("a",)),)
    assert [route.drops for route in routes_by_device(model)["cpu:1"]] == [("y0",), ("y1",), ("y2", "a")]
    with PlannedSession.from_partition(model, cpus(2)) as session:
        for got in session.run(None, {"x": ramp()}):
            np.testing.assert_array_equal(got, ramp())


@pytest.mark.parametrize(("room", "shared"), [(5.5, False), (4.5, True)])
def test_weights_are_shared_where_copies_for_all_segments_would_not_fit(
    room: float, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight in four segments: one of it while sessions are made, and a copy for each."""
    table = np.eye(128, dtype=np.float32)
    values = [info(f"v{i}", (2, 128)) for i in range(5)]
    segments = [
        segment(f"s{i}", "cpu:0", [node("MatMul", [a.name, "w"], [b.name])], [a], [b], {"w": table}, {"w": "k"})
        for i, (a, b) in enumerate(pairwise(values))
    ]
    asked: list[bool] = []

    class Spy(SegmentSession):
        def __init__(self, *given: Any, share_weights: bool, **others: Any) -> None:
            asked.append(share_weights)
            super().__init__(*given, share_weights=share_weights, **others)

    monkeypatch.setattr(executor, "SegmentSession", Spy)
    device = replace(cpus(1).devices["cpu:0"], memory_bytes=int(room * table.nbytes))
    model = partitioned(segments, values[:1], values[-1:])
    with PlannedSession.from_partition(model, LocalDevices({"cpu:0": device}, ())) as session:
        x = np.ones((2, 128), np.float32)
        np.testing.assert_array_equal(session.run(None, {"v0": x})[0], x)
    assert asked == [shared] * 4
