"""Statistics over a few independent trainings (seeds): what three to five numbers can say.

A seed is one training; its figure is the mean over its evaluation episodes. Intervals over seeds
use Student's t, which at three seeds is 2.2 times as wide as a normal interval.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVEL = 0.95
"""Coverage of every interval."""


def student_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Student's t interval of the mean of independent values; infinite for fewer than two."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return -math.inf, math.inf
    half = stats.t.ppf(0.5 + LEVEL / 2, len(values) - 1) * values.std(ddof=1)
    half /= math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def interquartile_mean(values: Sequence[float] | np.ndarray) -> float:
    """Mean without the lowest and the highest quarter; of three values or fewer, the plain mean.

    A quarter of n values is rounded down, as in rliable (Agarwal et al., 2021).
    """
    return float(stats.trim_mean(np.asarray(values, float), 0.25))


def probability_of_improvement(
    ours: Sequence[float] | np.ndarray, theirs: Sequence[float] | np.ndarray
) -> float:
    """P(X > Y) of a random seed of each: the share of pairs that ours wins, ties as a half."""
    difference = np.subtract.outer(np.asarray(ours, float), np.asarray(theirs, float))
    return float(np.mean(np.where(difference == 0, 0.5, difference > 0)))
