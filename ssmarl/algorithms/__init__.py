"""The learning algorithms, by name. To add one: a file with an `Algorithm`, and a line here."""

from ssmarl.algorithms.ssmarl import SSMARL

ALGORITHMS = {algorithm.name: algorithm for algorithm in (SSMARL,)}
