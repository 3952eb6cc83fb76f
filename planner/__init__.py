"""fddps: plans where every operator of an ONNX model runs on several devices, and runs the plan with ONNX Runtime.

From Python::

    import planner
    from planner.launcher import PlannedSession
    from planner.plan.files import write_plan

    plan = planner.plan("model.onnx", cpus=2, batch=8)
    write_plan(plan, "plan.yaml")
    with PlannedSession("plan.yaml") as session:
        outputs = session.run(None, feeds)

``planner.plan`` is the function (see ``planner.api.plan``) and at the same time the package that holds plan files.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

# As that of ``typing``, which takes 20 ms to import: the command line handles no signals before this file has run.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from typing import Any

    from planner.api import plan as plan
    from planner.version import __version__ as __version__


class _CallableModule(ModuleType):
    """The package ``planner.plan``, which can also be called; loads nothing before it is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("planner.api").plan(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        import inspect

        return inspect.signature(importlib.import_module("planner.api").plan)


importlib.import_module("planner.plan")
sys.modules["planner.plan"].__class__ = _CallableModule


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("planner.version").__version__
    if name in ("api", "errors", "launcher"):
        return importlib.import_module(f"planner.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
