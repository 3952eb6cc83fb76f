"""What all tests share: a hypothesis profile that gives the same examples everywhere, and where models are."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

# Before numpy and ONNX Runtime are loaded: two test workers share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.models import light_path, reweight

# A test run in the background of a shell inherits an ignored Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent

# Derandomised: a failure on one machine is a failure on every machine. No deadline: machines differ in speed.
settings.register_profile(
    "fddps",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fddps")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder ``shared`` beside the checkout, with hard cases and benchmarks."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared (hard cases, benchmarks) is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder ``.models`` that ``make models`` and ``make package-models`` fill."""
    folder = ROOT / ".models"
    if not folder.is_dir():
        pytest.skip("no .models folder: run `make package-models` or `make models`")
    return folder


@pytest.fixture(scope="session")
def light_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of a light model (``resnet50``, ...) with weights that tell inputs apart; made once a test run."""
    folder = tmp_path_factory.mktemp("light")

    def made(name: str) -> Path:
        path = folder / f"{name}.onnx"
        if not path.exists():
            reweight(light_path(name), path, seed=0)
        return path

    return made
