"""The learning algorithms by name. A user's own live in the user's own file (docs/extending.md)."""

from ssmarl.algos.base import Algorithm
from ssmarl.algos.dgppo import DGPPO
from ssmarl.algos.informarl import INFORMARL
from ssmarl.algos.mappo_lagrangian import MAPPO_LAGRANGIAN
from ssmarl.algos.rmacpo import RMACPO
from ssmarl.algos.rmappo import RMAPPO
from ssmarl.algos.ssmarl import SSMARL
from ssmarl.algos.tem import TEM
from ssmarl.core.registry import Registry

ALGORITHMS: Registry[Algorithm] = Registry(
    "algo", Algorithm, [SSMARL, RMACPO, RMAPPO, MAPPO_LAGRANGIAN, INFORMARL, TEM, DGPPO]
)
