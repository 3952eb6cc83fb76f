"""Planning problems from small models with data-sheet costs: the same on every machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import onnx

from planner.cluster.cpu import divide_cores
from planner.cluster.gpu import gpu_devices
from planner.cluster.load import load_cluster
from planner.cluster.sheets import load_sheets
from planner.cluster.types import Cluster
from planner.cost.estimate import CostTable
from planner.cost.profile import ProfileTable
from planner.model.load import load_model
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.plan.schema import CostProvenance, ModelRef, Plan
from planner.resources import data_path
from planner.schedule.build import Header, build_plan
from planner.schedule.drafts import Draft, Setting
from planner.schedule.workload import Workloads
from planner.split.propagate import AxisCache
from tests.models import save
from tests.models.small import nasnet_cell_like, residual_chain, tiny_cnn, tiny_lstm, tiny_mlp, tiny_transformer

# Large enough that several devices can pay, small enough to plan in a second.
MODELS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "cnn": lambda: tiny_cnn(batch=16, size=64, channels=64),
    "mlp": lambda: tiny_mlp(batch=64, hidden=1024),
    "transformer": lambda: tiny_transformer(batch=8, length=64, width=256, heads=8),
    "lstm": lambda: tiny_lstm(batch=8),
    "residual": lambda: residual_chain(batch=8, size=64, channels=64),
    "nasnet": lambda: nasnet_cell_like(size=64, channels=64),
}


def _shipped(name: str) -> Cluster:
    return load_cluster(data_path("configs") / "clusters" / f"{name}.yaml")


CLUSTERS: Final[Mapping[str, Callable[[], Cluster]]] = {
    "1-v100": lambda: gpu_devices("1", "v100-sxm2-16gb"),
    "4-v100": lambda: gpu_devices("4", "v100-sxm2-16gb"),
    "2-v100-2-t4": lambda: _shipped("two-v100-two-t4"),
    "2-nodes": lambda: _shipped("two-nodes-of-two-v100"),
    "2-sockets": lambda: _shipped("two-sockets"),
    "3-cpus": lambda: divide_cores("3x2", range(6), "generic", 48 << 30),
}


@cache
def model_path(name: str) -> Path:
    """A model of ``MODELS`` as a file."""
    return save(MODELS[name](), Path(tempfile.mkdtemp(prefix="fddps-test-")))


@cache
def setting_of(model: str, cluster: str, effort: str = "quick") -> Setting:
    """The planners' problem."""
    return make_setting(model_path(model), CLUSTERS[cluster](), effort)


def make_setting(path: Path, cluster: Cluster, effort: str = "quick") -> Setting:
    """As the pipeline makes it, from data sheets alone."""
    loaded = load_model(path)
    costs = CostTable(ProfileTable(), load_sheets())
    dispatch = max(costs.dispatch_ns(device).ns for device in cluster.devices)
    return Setting(
        loaded, cluster, costs, Workloads(loaded, cluster, costs), AxisCache(loaded.graph), {}, dispatch, effort
    )


def plan_of(draft: Draft, setting: Setting) -> Plan:
    """The draft as a plan."""
    reference = ModelRef(path="model.onnx", digest=setting.model.digest, simplification=SIMPLIFICATION_VERSION)
    header = Header("test", "0", reference, "quick", 0, CostProvenance(), setting.cluster, setting.dispatch_ns)
    plan, _ = build_plan(draft, setting.model, header)
    return plan
