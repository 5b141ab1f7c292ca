"""PyTorch Geometric: a graph attention actor on the agents' neighbourhoods.

    python examples/clients/pyg_actor.py

Every agent's observation, a Gymnasium graph of varying size, becomes a `torch_geometric.data.Data`;
all agents of a step are one `Batch`. The actor is trained by likelihood-ratio gradients of the
reward minus a Lagrange multiplier times the cost. Trained on two agents, it drives any number.
"""

# pyright: reportMissingImports=false
import torch
from gymnasium.spaces import GraphInstance
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv

from ssmarl.adapters.pettingzoo import MultiAgentGraphConstrainEnv

TYPES, HIDDEN = 3, 32
EPISODES, RATE, MULTIPLIER_RATE, GAMMA, STD = 8, 3e-3, 0.5, 0.95, 0.4


def to_data(graph: GraphInstance) -> Data:
    """Nodes: type as one of three, and the position; the index says nothing. Node 0: the agent."""
    nodes = torch.as_tensor(graph.nodes)
    types = torch.nn.functional.one_hot(nodes[:, 0].long(), TYPES).float()
    return Data(
        x=torch.cat([types, nodes[:, 2:]], dim=1),
        edge_index=torch.as_tensor(graph.edge_links).long().T.reshape(2, -1),
        edge_attr=torch.as_tensor(graph.edges),
    )


class Actor(torch.nn.Module):
    """Two rounds of attention, then the mean action of each graph's node 0."""

    def __init__(self, edge_size: int, action_size: int):
        super().__init__()
        self.first = GATv2Conv(TYPES + 2, HIDDEN, edge_dim=edge_size, add_self_loops=False)
        self.second = GATv2Conv(HIDDEN, HIDDEN, edge_dim=edge_size, add_self_loops=False)
        self.head = torch.nn.Linear(2 * HIDDEN, action_size)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Mean actions [graphs, U]."""
        first = torch.tanh(self.first(batch.x, batch.edge_index, batch.edge_attr))
        second = torch.tanh(self.second(first, batch.edge_index, batch.edge_attr))
        own = batch.ptr[:-1]
        return self.head(torch.cat([first[own], second[own]], dim=1))


def episode(env: MultiAgentGraphConstrainEnv, actor: Actor, seed: int | None) -> dict:
    """One episode with action noise: tensors [T, A], costs by name."""
    observations, _ = env.reset(seed=seed)
    log_probs, rewards, costs = [], [], []
    while env.agents:
        agents = env.agents
        mean = actor(Batch.from_data_list([to_data(observations[agent]) for agent in agents]))
        distribution = torch.distributions.Normal(mean, STD)
        action = distribution.sample()
        log_probs.append(distribution.log_prob(action).sum(dim=1))
        joint = dict(zip(agents, action.numpy(), strict=True))
        observations, reward, _, _, infos = env.step(joint)
        rewards.append([reward[agent] for agent in agents])
        costs.append([[v for k, v in infos[a].items() if k.startswith("cost_")] for a in agents])
    names = [f"cost_{item.name}" for item in env.env.constraints]
    return {
        "log_prob": torch.stack(log_probs),
        "reward": torch.tensor(rewards),
        **dict(zip(names, torch.tensor(costs).movedim(2, 0), strict=True)),
    }


def returns(values: torch.Tensor) -> torch.Tensor:
    """Discounted sums from each step on, [..., T, A]."""
    total, sums = torch.zeros_like(values[..., 0, :]), []
    for t in reversed(range(values.shape[-2])):
        total = values[..., t, :] + GAMMA * total
        sums.append(total)
    return torch.stack(sums[::-1], dim=-2)


def learn(iterations: int = 30, seed: int = 0, steps: int = 30) -> list[dict[str, float]]:
    """Train two agents; per iteration the team's reward, and costs per agent and episode."""
    torch.manual_seed(seed)
    env = MultiAgentGraphConstrainEnv(
        "navigation", 2, constraints=["collision=0.5", "effort=20"], max_cycles=steps
    )
    actor = Actor(env.env.dynamics.state_dim, env.env.dynamics.action_dim)
    optimiser = torch.optim.Adam(actor.parameters(), RATE)
    multiplier, limit, history = 0.0, env.env.constraints[0].limit, []
    for i in range(iterations):
        first = seed if i == 0 else None
        runs = [episode(env, actor, first if k == 0 else None) for k in range(EPISODES)]
        data = {name: torch.stack([run[name] for run in runs]) for name in runs[0]}
        costs = {
            name: data[name].sum(dim=1).mean().item() for name in data if name.startswith("cost_")
        }
        reward = data["reward"].sum(dim=(1, 2)).mean().item()
        history.append({"reward": reward, **costs, "multiplier": multiplier})
        multiplier = max(0.0, multiplier + MULTIPLIER_RATE * (costs["cost_collision"] - limit))
        gain = returns(data["reward"] - multiplier * data["cost_collision"])
        advantage = gain - gain.mean(dim=(0, 2), keepdim=True)
        loss = -(data["log_prob"] * advantage / (advantage.std() + 1e-8)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return history


if __name__ == "__main__":
    for i, row in enumerate(learn()):
        print(f"iteration {i:3d}  " + "  ".join(f"{name} {row[name]:7.2f}" for name in row))
