"""Safe, scalable multi-agent reinforcement learning in JAX.

env = ssmarl.make("navigation", num_agents=3)
state = env.reset(jax.random.key(0))
state, outcome = env.step(state, action)
graph = env.graph(state)

policy = ssmarl.load("pretrained:navigation")
action, memory = policy.act(policy.observe(env, state), memory)
result = ssmarl.evaluate(policy, num_agents=96, episodes=100)
run = ssmarl.train(ssmarl.TrainConfig(num_agents=(3,), steps=1_000_000))
"""

from importlib.metadata import version

from ssmarl.controllers import controller
from ssmarl.errors import InputError
from ssmarl.evaluation.policies import evaluate_policy as evaluate
from ssmarl.policy import Policy, load
from ssmarl.training.config import TrainConfig
from ssmarl.training.run import Run, resume, train
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
    "Policy",
    "Run",
    "Scenario",
    "Search",
    "Situation",
    "TrainConfig",
    "World",
    "WorldState",
    "controller",
    "evaluate",
    "find_scenario",
    "load",
    "make",
    "register_constraint",
    "register_scenario",
    "resume",
    "train",
]
