"""The learning algorithms, by name. To add one: a file with an `Algorithm`, and a line here."""

from ssmarl.algorithms.dgppo import DGPPO
from ssmarl.algorithms.informarl import INFORMARL
from ssmarl.algorithms.mappo_lagrangian import MAPPO_LAGRANGIAN
from ssmarl.algorithms.rmacpo import RMACPO
from ssmarl.algorithms.rmappo import RMAPPO
from ssmarl.algorithms.ssmarl import SSMARL
from ssmarl.algorithms.tem import TEM

ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (SSMARL, RMACPO, RMAPPO, MAPPO_LAGRANGIAN, INFORMARL, TEM, DGPPO)
}
