"""What an installation holds: every package, the data files, the command, one version."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from planner.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DATA = ("profiles", "configs")


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources: building beside them would leave files there."""
    if tuple(int(part) for part in metadata.version("setuptools").split(".")[:1]) < (77,):
        pytest.skip("building a wheel needs setuptools 77, as in the extra `test`")
    source, out = tmp_path_factory.mktemp("source with space"), tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("planner", *DATA):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    (built,) = out.glob("*.whl")
    return built


def test_every_package_is_listed(config: configparser.ConfigParser) -> None:
    listed = config["options"]["packages"].split()
    found = [".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "planner").rglob("__init__.py")]
    assert sorted(listed) == sorted([*found, *(f"planner._data.{name}" for name in DATA)])


def test_command_is_declared(config: configparser.ConfigParser) -> None:
    assert config["options.entry_points"]["console_scripts"].split() == ["fddps", "=", "planner.cli.entry:run"]


def test_every_third_party_import_is_declared(config: configparser.ConfigParser) -> None:
    """An import that only the extra `test` brings along would fail for whoever installs the tool alone."""
    extras = config["options.extras_require"]
    declared = {
        re.split(r"[<>=]", line)[0].replace("-", "_").lower()
        for line in (*config["options"]["install_requires"].split(), *extras["gpu"].split())
    }
    distributions = {"yaml": "pyyaml", "pynvml": "nvidia_ml_py", "google": "protobuf"}
    imported = set()
    for path in sorted((ROOT / "planner").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                imported.add(node.module.split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"planner"}
    assert len(foreign) >= 10
    assert sorted({distributions.get(name, name) for name in foreign} - declared) == []


def test_no_more_than_the_gpu_library_in_the_gpu_extra(config: configparser.ConfigParser) -> None:
    """ONNX Runtime's GPU build replaces the CPU build: which one is there is the user's choice, not an extra's."""
    assert [line.split(">=")[0] for line in config["options.extras_require"]["gpu"].split()] == ["nvidia-ml-py"]


def test_the_wheel_holds_data_schema_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in DATA:
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            assert f"planner/_data/{path.relative_to(ROOT).as_posix()}" in names
    assert "planner/py.typed" in names
    assert any(name.startswith("planner/plan/") and name.endswith(".schema.json") for name in names)
    assert not [name for name in names if not name.startswith(("planner/", "fddps-"))]


def test_the_wheel_has_the_version_that_the_tool_prints(wheel: Path) -> None:
    assert wheel.name.startswith(f"fddps-{__version__}-")


def test_an_installed_copy_finds_its_data(wheel: Path, tmp_path: Path) -> None:
    """Not from the sources: the package is imported from where the wheel was unpacked, in an unrelated folder."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    script = (
        "from planner.resources import data_path\n"
        "for kind in ('profiles', 'configs'):\n"
        "    print(data_path(kind), len(list(data_path(kind).rglob('*.yaml'))))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=elsewhere, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    for kind, line in zip(DATA, printed, strict=True):
        folder, count = line.rsplit(" ", 1)
        assert Path(folder) == site / "planner" / "_data" / kind
        assert int(count) == len(list((ROOT / kind).rglob("*.yaml"))) > 0
