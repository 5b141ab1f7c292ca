"""Safe, scalable multi-agent reinforcement learning in JAX.

env = ssmarl.make("navigation", num_agents=3)
state = env.reset(jax.random.key(0))
state, outcome = env.step(state, action)
graph = env.graph(state)
"""

from importlib.metadata import version

from ssmarl.errors import InputError
from ssmarl.world.constraints import Constraint
from ssmarl.world.env import Env, Outcome
from ssmarl.world.graph import Edges, Graph
from ssmarl.world.make import find_scenario, make, register_constraint, register_scenario
from ssmarl.world.near import Search
from ssmarl.world.scenario import Scenario, Situation
from ssmarl.world.state import Layout, World, WorldState

__version__ = version("ssmarl")

__all__ = [
    "Constraint",
    "Edges",
    "Env",
    "Graph",
    "InputError",
    "Layout",
    "Outcome",
    "Scenario",
    "Search",
    "Situation",
    "World",
    "WorldState",
    "find_scenario",
    "make",
    "register_constraint",
    "register_scenario",
]
