"""What the README shows is what there is."""

from __future__ import annotations

import re

from tests.conftest import ROOT


def test_the_excerpt_is_of_the_golden_plan() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    golden = (ROOT / "tests" / "golden" / "cnn-on-2-v100-2-t4.yaml").read_text(encoding="utf-8").splitlines()
    (excerpt,) = re.findall(r"```yaml\nschema: fddps/plan/v1\n.*?```", readme, re.DOTALL)
    lines = [line for line in excerpt.splitlines()[1:-1] if not line.strip().startswith("#")]
    assert len(lines) > 20
    for line in lines:
        begin, dots, _ = line.partition(" ...")
        assert any(known.startswith(begin) if dots else known == line for known in golden), line
