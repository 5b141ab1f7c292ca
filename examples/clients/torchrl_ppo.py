"""TorchRL: multi-agent PPO with a Lagrange multiplier on the costs.

    python examples/clients/torchrl_ppo.py

TorchRL's own wrapper for PettingZoo puts the costs beside the rewards, as
`("next", "agent", "info", "cost_collision")`: every iteration prints them against their limit.
"""

# pyright: reportMissingImports=false
import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.modules import MultiAgentMLP, ProbabilisticActor, TanhNormal
from torchrl.objectives import ClipPPOLoss, ValueEstimators

from ssmarl.adapters.pettingzoo import MultiAgentConstrainEnv

EPISODES, EPOCHS, RATE, MULTIPLIER_RATE = 8, 8, 1e-3, 0.5
OBSERVATION, ACTION = ("agent", "observation"), ("agent", "action")


def network(env: PettingZooWrapper, outputs: int, centralised: bool) -> MultiAgentMLP:
    return MultiAgentMLP(
        n_agent_inputs=env.observation_spec[OBSERVATION].shape[-1],
        n_agent_outputs=outputs,
        n_agents=len(env.group_map["agent"]),
        centralised=centralised,
        share_params=True,
        depth=2,
        num_cells=64,
        activation_class=torch.nn.Tanh,
    )


def learner(env: PettingZooWrapper) -> tuple[ProbabilisticActor, ClipPPOLoss]:
    """A shared actor on own observations, and a critic on everybody's."""
    spec = env.full_action_spec[ACTION]
    size = spec.shape[-1]
    body = torch.nn.Sequential(network(env, 2 * size, False), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(body, [OBSERVATION], [("agent", "loc"), ("agent", "scale")]),
        in_keys=[("agent", "loc"), ("agent", "scale")],
        out_keys=[ACTION],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high},
        return_log_prob=True,
    )
    critic = TensorDictModule(network(env, 1, True), [OBSERVATION], [("agent", "value")])
    loss = ClipPPOLoss(
        actor,
        critic,
        entropy_coeff=1e-3,
        normalize_advantage=True,
        normalize_advantage_exclude_dims=(-2,),  # that of the agents
    )
    loss.set_keys(
        reward=("agent", "reward"),
        action=ACTION,
        value=("agent", "value"),
        done=("agent", "done"),
        terminated=("agent", "terminated"),
    )
    loss.make_value_estimator(ValueEstimators.GAE, gamma=0.99, lmbda=0.95)
    return actor, loss


def learn(iterations: int = 30, seed: int = 0, steps: int = 40) -> list[dict[str, float]]:
    """Train two agents; per iteration the team's reward, and costs per agent and episode."""
    torch.manual_seed(seed)
    constraints = ["collision=0.5", "effort=20"]
    world = MultiAgentConstrainEnv("navigation", 2, constraints=constraints, max_cycles=steps)
    env = PettingZooWrapper(world, seed=seed)
    actor, loss = learner(env)
    optimiser = torch.optim.Adam(loss.parameters(), RATE)
    multiplier, limit, history = 0.0, world.env.constraints[0].limit, []
    for _ in range(iterations):
        with torch.no_grad():
            data = torch.stack([env.rollout(steps, actor) for _ in range(EPISODES)])
        after = data["next", "agent"]
        costs = {
            name: after["info", name].sum(dim=1).mean().item()
            for name in ("cost_collision", "cost_effort")
        }
        reward = after["reward"].sum(dim=(1, 2)).mean().item()
        history.append({"reward": reward, **costs, "multiplier": multiplier})
        multiplier = max(0.0, multiplier + MULTIPLIER_RATE * (costs["cost_collision"] - limit))
        after["reward"] -= multiplier * after["info", "cost_collision"].unsqueeze(-1)
        with torch.no_grad():
            loss.value_estimator(
                data,
                params=loss.critic_network_params,
                target_params=loss.target_critic_network_params,
            )
        for _ in range(EPOCHS):
            losses = loss(data.reshape(-1))
            total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optimiser.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
            optimiser.step()
    return history


if __name__ == "__main__":
    for i, row in enumerate(learn()):
        print(f"iteration {i:3d}  " + "  ".join(f"{name} {row[name]:7.2f}" for name in row))
