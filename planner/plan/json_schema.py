"""The published JSON Schema of plan files, for editors and for other tools that write or read plans.

``python -m planner.plan.json_schema`` writes it anew after a change of the schema; a test holds the two together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from planner.plan.atomic import write_text_atomically
from planner.plan.schema import SCHEMA_ID, Plan

SCHEMA_FILE: Final = Path(__file__).with_name("fddps-plan-v1.schema.json")


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a plan file."""
    schema = Plan.model_json_schema(by_alias=True)
    # A plan without its version says nothing, whatever the reader's default is.
    schema["required"] = ["schema", *schema["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "title": f"fddps plan, schema {SCHEMA_ID}",
    }


def json_schema_text() -> str:
    """The text of the published file."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_text_atomically(SCHEMA_FILE, json_schema_text())
