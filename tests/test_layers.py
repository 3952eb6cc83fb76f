"""The architecture of design section "Layout and layers", read off the import statements.

Imports point down only; a folder may import itself but none of its own layer. An import for typing counts: a type that
is needed is a dependency.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "planner"
MAX_LINES: Final = 400

# The first part of a module's path below planner/ -> layer.
LAYERS: Final[Mapping[str, int]] = {
    "units": 0,
    "errors": 0,
    "safe_yaml": 0,
    "resources": 0,
    "version": 0,
    # What Python callers know options as.
    "parameters": 1,
    "graph": 1,
    "cluster": 1,
    "plan": 1,
    "cost": 2,
    "report": 2,
    # Rules about operators, which need nothing but the graph's types. Loading asks them whether a new batch size mixes
    # samples.
    "split": 2,
    "model": 3,
    "training": 4,
    "partition": 4,
    # Sessions and values of ONNX Runtime, which profiling and launcher share; not in the design's list.
    "runtime": 5,
    "profiling": 6,
    "simulate": 6,
    "launcher": 6,
    "schedule": 7,
    "learn": 8,
    # What is asked for; then running what is about to win, and choosing; then the whole flow.
    "request": 8,
    # The file of measured costs.
    "cost_cache": 8,
    # What the profile remembers of plans that were run.
    "tried": 8,
    # Files of bare task graphs, which need no model.
    "bare_tasks": 8,
    "choice": 9,
    "finalists": 9,
    "pipeline": 10,
    # The flow again and again, with what runs showed.
    "tuning": 11,
    # The pipeline by names of devices, profiles and files, for Python callers and the command line.
    "api": 12,
    "cli": 13,
}

# Third-party package -> the parts that may import it.
OWNERS: Final[Mapping[str, frozenset[str]]] = {
    "onnx": frozenset({"model", "partition", "training"}),
    "onnx_ir": frozenset({"model", "partition", "training"}),
    "onnx_ad": frozenset({"training"}),
    "onnxruntime": frozenset({"runtime", "profiling", "launcher"}),
    "pynvml": frozenset({"cluster", "runtime"}),
    "torch": frozenset({"learn"}),
    "ray": frozenset({"learn"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"report", "cli"}),
}

# part -> parts it never imports, although they lie below it.
FORBIDDEN: Final[Mapping[str, frozenset[str]]] = {
    # A plan is a contract: it knows nothing of the graph it was made from.
    "plan": frozenset(LAYERS) - {"plan", "units", "errors", "safe_yaml", "resources", "version"},
    # The launcher executes what the plan says and decides nothing.
    "launcher": frozenset({"schedule", "cost", "pipeline", "split", "simulate", "profiling"}),
    "runtime": frozenset({"cost", "split"}),
    # An independent check of what the scheduler promised reads the plan, not the scheduler's own data.
    "simulate": frozenset({"schedule", "cost", "split"}),
}

# Module -> why it may be longer than MAX_LINES.
LONG_MODULES: Final[Mapping[str, str]] = {}


def _modules(package: Path) -> dict[str, Path]:
    """Dotted name below the package -> file."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def _imports(path: Path, module: str, *, eager_only: bool = False) -> Iterator[str]:
    """Absolute names that a module imports, ``planner.x.y`` or third-party; ``from a import b`` gives ``a.b``.

    Args:
        path: file of the module.
        module: dotted name below ``planner``.
        eager_only: leave out what runs only inside a function or for type checkers.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _eager(tree) if eager_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ["planner", *module.split(".")] if module else ["planner"]
                if path.name != "__init__.py":
                    package = package[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _eager(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _eager(node)


def _part(name: str) -> str:
    """``planner.graph.paths`` or ``graph.paths`` -> ``graph``."""
    return name.removeprefix("planner.").split(".")[0]


def violations(package: Path) -> list[str]:
    """Imports that break a rule, one line each."""
    found = []
    for module, path in _modules(package).items():
        part = _part(module)
        if not part:
            eager = _imports(path, module, eager_only=True)
            found += [f"planner/__init__.py imports {name}" for name in eager if "planner" in name]
            continue
        if part not in LAYERS:
            found.append(f"{module}: '{part}' has no layer; add it to design and to LAYERS")
            continue
        for name in _imports(path, module):
            found += _violations_of(module, part, name)
    return found


def _violations_of(module: str, part: str, name: str) -> list[str]:
    root = name.split(".")[0]
    if root != "planner":
        allowed = OWNERS.get(root)
        return [f"{module} imports {root}"] if allowed is not None and part not in allowed else []
    target = _part(name)
    if target == part or name in ("planner.__version__", "planner"):
        return []
    if target not in LAYERS:
        return [f"{module} imports {name}, which has no layer"]
    if target in FORBIDDEN.get(part, frozenset()):
        return [f"{module} imports {name}: {part}/ must not know {target}"]
    if LAYERS[target] >= LAYERS[part] and LAYERS[part] > 0:
        return [f"{module} (layer {LAYERS[part]}) imports {name} (layer {LAYERS[target]})"]
    if LAYERS[target] > 0 and LAYERS[part] == 0:
        return [f"{module} (layer 0) imports {name} (layer {LAYERS[target]})"]
    return []


def import_cycle(package: Path) -> list[str]:
    """Modules that import one another when they are loaded, in a ring; empty if there is none."""
    modules = _modules(package)
    edges = {}
    for module, path in modules.items():
        names = [name.removeprefix("planner.") for name in _imports(path, module, eager_only=True)]
        # `from planner.a import b`: b is a module, or a name inside a.
        known = [name if name in modules else name.rpartition(".")[0] for name in names]
        edges[module] = [name for name in dict.fromkeys(known) if name in modules and name not in ("", module)]
    done: set[str] = set()
    for start in modules:
        ring = _ring_from(start, edges, done)
        if ring:
            return ring
    return []


def _ring_from(start: str, edges: Mapping[str, list[str]], done: set[str]) -> list[str]:
    """Depth-first search without recursion; ``done`` collects modules known to lead to no ring."""
    path, pending = [start], [iter(edges[start])]
    while pending:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            done.add(path.pop())
        elif following in path:
            return [*path[path.index(following) :], following]
        elif following not in done:
            path.append(following)
            pending.append(iter(edges[following]))
    return []


def test_imports_point_down_only() -> None:
    assert violations(PACKAGE) == []


def test_no_import_cycle() -> None:
    assert import_cycle(PACKAGE) == []


def test_modules_stay_short() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in _modules(PACKAGE).items()}
    too_long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES and name not in LONG_MODULES}
    assert too_long == {}
    assert [name for name in LONG_MODULES if lengths.get(name, 0) <= MAX_LINES] == [], "an exception that is not needed"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("graph/bad.py", "from planner.cost import model"),
        ("graph/bad.py", "import planner.cluster.types"),
        ("graph/bad.py", "from ..cluster import types"),
        ("graph/bad.py", "def f():\n    import onnx.helper"),
        ("graph/bad.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planner.schedule import dcp"),
        ("cost/bad.py", "from onnx_ir import Model"),
        ("schedule/bad.py", "import onnxruntime as ort"),
        ("launcher/bad.py", "from planner.cost.model import CostModel"),
        ("plan/bad.py", "from planner.graph.op_graph import Op"),
        ("units.py", "from planner.graph import op_graph"),
        ("newfolder/bad.py", "x = 1"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, source: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    assert len(violations(tmp_path)) == 1


def test_allowed_imports_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    source = "import numpy\nfrom planner.errors import FddpsError\nfrom planner.plan import schema\nfrom . import dcp\n"
    (tmp_path / "schedule" / "good.py").write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []


def test_a_cycle_is_found_and_a_lazy_import_breaks_it(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "a.py").write_text("from planner.graph.b import f\n", encoding="utf-8")
    b = tmp_path / "graph" / "b.py"
    b.write_text("from planner.graph import a\n", encoding="utf-8")
    assert import_cycle(tmp_path) == ["graph.a", "graph.b", "graph.a"]
    b.write_text("def f():\n    from planner.graph import a\n    return a\n", encoding="utf-8")
    assert import_cycle(tmp_path) == []
