"""Checks that the published JSON Schema of plan files is the one that the code enforces; ``--write`` renews it."""

from __future__ import annotations

import sys

from planner.plan.atomic import write_text_atomically
from planner.plan.json_schema import SCHEMA_FILE, json_schema_text


def main() -> int:
    """Command line."""
    if sys.argv[1:] == ["--write"]:
        write_text_atomically(SCHEMA_FILE, json_schema_text())
        return 0
    published = SCHEMA_FILE.read_text(encoding="utf-8") if SCHEMA_FILE.exists() else ""
    if published == json_schema_text():
        return 0
    print(f"{SCHEMA_FILE.name}: not what the code enforces; run `make schema` and commit it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
