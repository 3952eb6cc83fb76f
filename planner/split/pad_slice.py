"""Split rules: Pad and Slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.split.common import Rule

RULES: Final[Mapping[tuple[str, str], Rule]] = {}
