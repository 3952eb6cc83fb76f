"""Random numbers for kernels: a counter generator, the same on every machine (splitmix64, Steele et al. 2014)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel

U64 = npt.NDArray[np.uint64]


def seeded(seed: int) -> U64:
    """State for :func:`draw`: uint64[1]."""
    return np.array([(2 * seed + 1) % 2**64], np.uint64)


@kernel
def draw(state: U64) -> int:
    """The next number, 0 to 2**31 - 1; advances the state."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))) >> np.uint64(33))
