"""The measured table of the README, taken from the benchmark's rows; ``--write`` puts it there, else exit code 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from planner.plan.atomic import write_text_atomically
from tools.bench import RESULTS

README: Final = Path("README.md")
# As the README calls them; all others are in the results only.
SHOWN: Final = {
    "timm_resnet50": "ResNet-50",
    "timm_inception_v3": "Inception v3",
    "timm_densenet121": "DenseNet-121",
    "timm_efficientnet_b0": "EfficientNet-B0",
    "timm_pnasnet_mobile": "PNASNet mobile",
    "timm_pnasnet5large": "PNASNet large",
    "keras_NASNetMobile": "NASNet mobile (Keras)",
    "transformers_bert_base_dynamic": "BERT base, 128 tokens",
    "transformers_gpt2_dynamic": "GPT-2, 128 tokens",
    "light_vgg19": "VGG-19",
}
# As the README says above the table.
MACHINE: Final = "AMD EPYC"
HEADING: Final = "| model | batch | plan by | one thread |"


def line(row: dict[str, Any]) -> str:
    """One row of the table; times in milliseconds."""
    times = [row[field] * 1000 for field in ("one_thread", "predicted_step_s", "planned")]
    cells = [SHOWN[row["name"]], str(row["batch"]), row["planner"], *(f"{time:.1f}" for time in times)]
    cells += [f"{row['one_thread_over_planned']:.2f}", f"{row['all_threads'] * 1000:.1f}"]
    return "| " + " | ".join([*cells, f"{row['best_mode_over_planned']:.2f}"]) + " |"


def with_table(readme: str, results: str) -> str:
    """The README with the rows of the results.

    Args:
        readme: its text, with the table's heading.
        results: the benchmark's rows, JSON lines.
    """
    rows = [row for row in map(json.loads, results.splitlines()) if row["kind"] == "run" and "failed" not in row]
    rows = [row for row in rows if row["machine"].startswith(MACHINE)]
    table = [line(row) for name in SHOWN for row in rows if row["name"] == name]
    lines = readme.splitlines()
    start = next(number for number, text in enumerate(lines) if text.startswith(HEADING)) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:start], *table, *lines[end:]]) + "\n"


def main() -> int:
    """Write or compare."""
    readme = README.read_text(encoding="utf-8")
    wanted = with_table(readme, RESULTS.with_suffix(".jsonl").read_text(encoding="utf-8"))
    if "--write" in sys.argv[1:]:
        write_text_atomically(README, wanted)
    elif readme != wanted:
        print(
            "README.md: its table is not that of the results; `python -m tools.readme_table --write`", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
