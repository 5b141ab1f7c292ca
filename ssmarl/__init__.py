"""Safe, scalable multi-agent reinforcement learning in JAX.

env = ssmarl.make("navigation", num_agents=3)
state = env.reset(jax.random.key(0))
state, result = env.step(state, action)
graph = env.graph(state)

policy = ssmarl.load("pretrained:navigation")
action, recurrent = policy.act(policy.observe(env, state), policy.initial_state(3))
metrics = ssmarl.evaluate(policy, num_agents=96, episodes=100)
run = ssmarl.train(ssmarl.TrainConfig(num_agents=3, steps=1_000_000))
"""

from importlib.metadata import version

from ssmarl.algos import ALGORITHMS
from ssmarl.algos.base import Algorithm, AlgorithmConfig, Preset
from ssmarl.control.controllers import controller
from ssmarl.core.errors import InputError
from ssmarl.core.registry import load_file
from ssmarl.env.constraint import Constraint, Cost
from ssmarl.env.costs import COSTS
from ssmarl.env.dynamics import DYNAMICS
from ssmarl.env.dynamics.base import Dynamics
from ssmarl.env.env import Env, StepResult
from ssmarl.env.graph import Edges, Graph
from ssmarl.env.make import make
from ssmarl.env.neighbors import NeighborConfig
from ssmarl.env.params import WorldParams
from ssmarl.env.scenario import Scenario
from ssmarl.env.scenarios import SCENARIOS
from ssmarl.env.state import Body, EnvState, Layout
from ssmarl.env.transition import Transition
from ssmarl.eval.policies import evaluate_policy as evaluate
from ssmarl.policy.policy import Policy, load
from ssmarl.train.config import TrainConfig
from ssmarl.train.recipes import RECIPES
from ssmarl.train.run import Run, resume, train

__version__ = version("ssmarl")

register_scenario = SCENARIOS.add
register_cost = COSTS.add
register_dynamics = DYNAMICS.add
register_algorithm = ALGORITHMS.add

__all__ = [
    "RECIPES",
    "SCENARIOS",
    "Algorithm",
    "AlgorithmConfig",
    "Body",
    "Constraint",
    "Cost",
    "Dynamics",
    "Edges",
    "Env",
    "EnvState",
    "Graph",
    "InputError",
    "Layout",
    "NeighborConfig",
    "Policy",
    "Preset",
    "Run",
    "Scenario",
    "StepResult",
    "TrainConfig",
    "Transition",
    "WorldParams",
    "controller",
    "evaluate",
    "load",
    "load_file",
    "make",
    "register_algorithm",
    "register_cost",
    "register_dynamics",
    "register_scenario",
    "resume",
    "train",
]
