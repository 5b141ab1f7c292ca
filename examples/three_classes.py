"""The paper's three environment classes, ten lines each."""

from ssmarl.adapters.pettingzoo import (
    MultiAgentConstrainEnv,
    MultiAgentEnv,
    MultiAgentGraphConstrainEnv,
)

# Plain: fixed-size observations, no cost.
env = MultiAgentEnv("navigation", num_agents=3)
observations, infos = env.reset(seed=0)
total = 0.0
while env.agents:
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    observations, rewards, terminations, truncations, infos = env.step(actions)
    total += sum(rewards.values())
print("plain: observation", observations["agent_0"].shape, "team reward", round(total, 1))

# Constrained: the same with costs, here two of them, as a six-tuple.
env = MultiAgentConstrainEnv("navigation", num_agents=3, constraints=["collision=1", "speed=5"])
observations, infos = env.reset(seed=0)
total = 0.0
while env.agents:
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    observations, rewards, costs, terminations, truncations, infos = env.step_with_cost(actions)
    total += sum(costs.values())
print("constrained: team cost", total, "last infos", infos["agent_0"])

# Graph: every agent observes its own neighbourhood, of varying size.
env = MultiAgentGraphConstrainEnv("navigation", num_agents=12)
observations, infos = env.reset(seed=0)
for agent, graph in observations.items():
    sources = graph.nodes[graph.edge_links[:, 0]]
    kinds = {"obstacles": 0, "agents": 1, "goals": 2}
    print(
        "graph:", agent, {name: int((sources[:, 0] == kind).sum()) for name, kind in kinds.items()}
    )
