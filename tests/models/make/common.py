"""What the exporting scripts share: the command line, and from an exported file to a model worth comparing."""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.models.reweight import CENTRE, reweight

# Makes an ONNX file at the path given.
Exporter = Callable[[Path], None]


def make_models(
    prefix: str,
    exporters: Mapping[str, Exporter],
    arguments: Sequence[str] | None = None,
    *,
    centre: Mapping[str, float] | None = None,
) -> None:
    """Command line of one script: export the models named, give them useful weights, put them in a folder.

    Args:
        prefix: file name prefix, e.g. ``timm``: the file is ``OUT/timm_NAME.onnx``.
        exporters: by model name.
        arguments: command line; None for the process's own.
        centre: how far to centre a model's channels, where it is not as ``reweight`` does by itself.
    """
    parser = argparse.ArgumentParser(description=f"Export {prefix} architectures with random weights.")
    parser.add_argument("names", nargs="+", choices=sorted(exporters), metavar="NAME", help=", ".join(exporters))
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--force", action="store_true", help="make models anew that are there")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    # Exporters warn about their own internals by the hundred.
    warnings.filterwarnings("ignore")
    for name in options.names:
        target = options.out / f"{prefix}_{name}.onnx"
        if target.exists() and not options.force:
            print(f"{target.name}: is there")
            continue
        _make(exporters[name], target, (centre or {}).get(name, CENTRE))
        print(f"{target.name}: {target.stat().st_size >> 20} MiB")


def _make(export: Exporter, target: Path, centre: float) -> None:
    """Export, reweight, and only then give the file its name: a stopped run leaves no half model."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as folder:
        raw, ready = Path(folder) / "raw.onnx", Path(folder) / target.name
        export(raw)
        reweight(raw, ready, seed=0, centre=centre)
        os.replace(ready, target)
