"""Statistics over seeds against tables, simulation and brute force."""

import itertools
import math

import numpy as np
import pytest

from ssmarl.eval.statistics import (
    interquartile_mean,
    probability_of_improvement,
    student_interval,
)


def test_the_interval_of_three_values_uses_students_quantile():
    values = np.array([1.0, 2.0, 4.0])
    low, high = student_interval(values)
    # 4.302653 is t(0.975) with 2 degrees of freedom in printed tables; a normal has 1.96.
    half = 4.302653 * values.std(ddof=1) / math.sqrt(3)
    np.testing.assert_allclose([low, high], [values.mean() - half, values.mean() + half], rtol=1e-6)


def test_the_interval_covers_the_mean_of_95_in_100_experiments():
    samples = np.random.default_rng(0).normal(7.0, 2.0, (4000, 3))
    covered = [low <= 7.0 <= high for low, high in map(student_interval, samples)]
    assert abs(np.mean(covered) - 0.95) < 0.012


def test_a_single_value_has_no_interval():
    assert student_interval([3.0]) == (-math.inf, math.inf)


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    values = [9.0, -100.0, 1.0, 2.0, 3.0, 4.0, 1000.0, 0.0]
    assert interquartile_mean(values) == np.mean([1.0, 2.0, 3.0, 4.0])
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3.0


@pytest.mark.parametrize("seed", range(3))
def test_probability_of_improvement_counts_pairs(seed):
    rng = np.random.default_rng(seed)
    ours, theirs = rng.integers(0, 4, 5).astype(float), rng.integers(0, 4, 3).astype(float)
    wins = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(ours, theirs))
    assert probability_of_improvement(ours, theirs) == pytest.approx(wins / 15)
