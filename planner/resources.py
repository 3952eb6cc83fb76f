"""Where the data files that ship with fddps are: device profiles and example clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from planner.errors import UsageError


def data_path(kind: Literal["profiles", "configs"]) -> Path:
    """The folder of shipped data.

    In a source checkout ``profiles/`` and ``configs/`` lie beside the package; a wheel carries them as
    ``planner/_data/profiles`` and ``planner/_data/configs``.

    Raises:
        UsageError: if the installation lacks it.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_data" / kind
    if installed.is_dir():
        return installed
    checkout = package.parent / kind
    if checkout.is_dir():
        return checkout
    raise UsageError(
        f"the folder '{kind}' is missing",
        where=str(package),
        expected="it beside or inside the package",
        next_step="reinstall fddps",
    )
