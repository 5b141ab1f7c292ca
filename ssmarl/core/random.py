"""Random numbers on the host, for the initial weights of networks: bounded in number."""

import numpy as np

from ssmarl.core.errors import InputError

MAX_WEIGHTS = 20_000_000
"""Most weights of the networks that are built together (80 MB)."""
LEAST_COUNTED = 1_000
"""Every draw counts at least as so many weights, so that a million tiny layers are refused too."""


class WeightGenerator(np.random.Generator):
    """NumPy's generator, which refuses to draw more than `MAX_WEIGHTS` normal numbers.

    A file or a setting of a few bytes could otherwise ask for networks that fill the memory.
    """

    def __init__(self, seed: int):
        super().__init__(np.random.PCG64(seed))  # the stream of np.random.default_rng(seed)
        self._drawn = 0

    def normal(self, loc=0.0, scale=1.0, size=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """As NumPy's."""
        self._drawn += max(int(np.prod(size or 1, dtype=float)), LEAST_COUNTED)
        if self._drawn > MAX_WEIGHTS:
            raise InputError(
                f"these networks have more than {MAX_WEIGHTS:,} weights: use smaller or fewer ones"
            )
        return super().normal(loc, scale, size)
