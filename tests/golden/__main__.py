"""Writes all golden plans again: ``python -m tests.golden``."""

from __future__ import annotations

from tests.golden import GOLDEN, golden_path, plan_text


def main() -> None:
    """Write every plan; say which changed."""
    for model, cluster in GOLDEN:
        path, text = golden_path(model, cluster), plan_text(model, cluster)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {'unchanged' if old == text else 'written'}")


if __name__ == "__main__":
    main()
