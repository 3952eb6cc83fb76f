from __future__ import annotations

import json
from typing import Any

import yaml

from planner.plan.files import dump_plan
from planner.plan.json_schema import SCHEMA_FILE, json_schema, json_schema_text
from tests.plan.builders import make_plan


def test_the_published_file_is_that_of_the_schema() -> None:
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == json_schema(), (
        "run python -m planner.plan.json_schema"
    )
    assert json.loads(json_schema_text()) == json_schema()


def test_a_written_plan_has_the_keys_that_the_json_schema_asks_for() -> None:
    schema = json_schema()
    data = yaml.safe_load(dump_plan(make_plan(transfers=[("t", "a", "b", 1)])))
    assert not list(_problems(data, schema, schema["$defs"], "plan"))
    del data["model"]["digest"]
    data["devices"][0]["segmets"] = []
    assert list(_problems(data, schema, schema["$defs"], "plan")) == [
        "plan.model lacks digest",
        "plan.devices[0] has segmets",
    ]


def _problems(value: Any, schema: dict[str, Any], defs: dict[str, Any], where: str) -> Any:
    """Required and unknown keys; enough of JSON Schema to see that the two documents talk about the same."""
    while "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], defs, f"{where}[{index}]")
    if not isinstance(value, dict):
        return
    yield from (f"{where} lacks {key}" for key in schema.get("required", ()) if key not in value)
    for key, item in value.items():
        if key in schema.get("properties", {}):
            yield from _problems(item, schema["properties"][key], defs, f"{where}.{key}")
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _problems(item, schema["additionalProperties"], defs, f"{where}.{key}")
        else:
            yield f"{where} has {key}"
