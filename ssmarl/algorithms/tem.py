"""TEM: PPO with chains of messages between agents (our reconstruction).

After "Transformer-based Email Mechanism" (arXiv 2301.01919). What is verified there and what is
reconstructed here: docs/baselines.md. Actions are learned by PPO; the message network also by a
loss of its own, which rewards messages that change what receivers do, and silence otherwise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.algorithms.ppo import PpoConfig, Recipe, algorithm, praise_reward
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gaussian import kl_divergence
from ssmarl.nets.team import AnyActor
from ssmarl.nets.tem import TemActor, TemConfig, TemMemory, silenced
from ssmarl.rl.score import Sight
from ssmarl.rl.values import ValueConfig
from ssmarl.world.graph import Graph

EFFECT = 0.1
"""Weight of a message's effect on its receiver's actions, per nat."""
MOST_EFFECT = 0.5
"""Effects above this are not praised further, in nats: messages should inform, not jam."""
PART = 8
"""One of so many chunks is used for this loss."""
SPARSITY = 0.01
"""Price of sending, relative to the effect's."""


def message_loss(actor: AnyActor, sight: Sight) -> Float[Array, ""]:
    """−KL(with what was received ‖ without) + a price of sending; of the message network alone."""
    assert isinstance(actor, TemActor), "TEM's own actor"
    only = eqx.tree_at(lambda actor: actor.messenger, stop_gradient(actor), actor.messenger)

    def step(memory: TemMemory, graph: Graph) -> tuple:
        policy, after, sends = only.step(graph, memory)
        # Not by acting oddly when nothing was received.
        without = stop_gradient(only.step(graph, silenced(memory))[0])
        effect = jnp.minimum(kl_divergence(policy, without), MOST_EFFECT)
        return after, (effect.mean(), sends.mean())

    def chunk(graph: Graph, memory: TemMemory) -> tuple[Float[Array, " L"], Float[Array, " L"]]:
        _, told = jax.lax.scan(step, memory, graph)
        return told

    # A part of the chunks is enough; which ones changes with every pass.
    count = jax.tree.leaves(sight.seen)[0].shape[0]
    few = jax.tree.map(lambda leaf: leaf[: max(1, count // PART)], (sight.seen, sight.memory))
    effect, sends = jax.vmap(chunk)(*few)
    return EFFECT * (SPARSITY * sends.mean() - effect.mean())


TEM = algorithm(
    "tem",
    "PPO with message chains read by a Transformer (our reconstruction)",
    {
        "default": PpoConfig(
            epochs=5, actor=TemConfig(), value=ValueConfig(critic=CriticConfig(), epochs=4)
        )
    },
    Recipe(praise_reward, aside=message_loss),
)
