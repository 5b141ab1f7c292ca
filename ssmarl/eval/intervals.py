"""95 % confidence intervals of means and of rates."""

import math

import numpy as np

Z95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """Normal interval of a mean over independent episodes; infinite for a single one."""
    if len(values) < 2:
        return -math.inf, math.inf
    half = Z95 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - half, middle + half


def rate_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's interval of a rate; at rates of 0 and 1 a normal interval would have no width."""
    if trials == 0:
        return 0.0, 1.0
    rate, z2 = successes / trials, Z95**2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials)
    half *= math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)
