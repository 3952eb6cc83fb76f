"""Random shapes and window attributes for the tests of split rules."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


@st.composite
def windows(draw: st.DrawFn, dims: int, pads: bool = True) -> tuple[list[int], dict[str, Any]]:
    """Kernel and attributes of ``dims`` spatial dimensions."""
    kernel = [draw(st.integers(1, 4)) for _ in range(dims)]
    attributes: dict[str, Any] = {
        "strides": draw(st.none() | st.lists(st.integers(1, 3), min_size=dims, max_size=dims)),
        "dilations": draw(st.none() | st.lists(st.integers(1, 2), min_size=dims, max_size=dims)),
    }
    auto = draw(st.sampled_from([None, None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    attributes["auto_pad"] = auto
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        attributes["dilations"] = None  # ONNX Runtime refuses the two together
    if pads and auto in (None, "NOTSET"):
        most = [(k - 1) * (attributes["dilations"] or [1] * dims)[i] for i, k in enumerate(kernel)]
        attributes["pads"] = draw(st.none() | st.tuples(*(st.integers(0, m) for m in most * 2)).map(list))
    return kernel, attributes


@st.composite
def shapes(draw: st.DrawFn, most: int = 4) -> tuple[int, ...]:
    """One to ``most`` dimensions of two to four elements."""
    return tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=most)))


def others(rank: int, axis: int) -> list[str]:
    """Names of all dimensions but one."""
    return [f"dim{dim}" for dim in range(rank) if dim != axis % rank]
