"""TEM: PPO with chains of messages between agents (our reconstruction).

After "Transformer-based Email Mechanism" (arXiv 2301.01919). What is verified there and what is
reconstructed here: docs/baselines.md. Actions are learned by PPO; the message network also has a
loss of its own, which rewards messages that change what receivers do, and silence otherwise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ssmarl.algos.ppo import PpoConfig, Variant, credit_reward, ppo_algorithm
from ssmarl.env.graph import Graph
from ssmarl.nets.actor import Actor
from ssmarl.nets.critic import CriticConfig
from ssmarl.nets.gaussian import kl_divergence
from ssmarl.nets.tem import TemActor, TemActorConfig, TemState, without_messages
from ssmarl.rl.critics import CriticFitConfig
from ssmarl.rl.samples import ObservationBatch

EFFECT_WEIGHT = 0.1
"""Weight of a message's effect on its receiver's actions, per nat: a tenth of the policy loss."""
MAX_EFFECT = 0.5
"""Effects above this are not rewarded further, in nats: messages should inform, not dominate."""
SEND_PRICE = 0.01
"""Price of sending, relative to the effect: small, so that useless messages stop first."""
CHUNK_DIVISOR = 8
"""One of so many chunks is used for this loss, which costs two more passes; which ones changes with
every minibatch."""


def message_loss(actor: Actor, batch: ObservationBatch) -> Float[Array, ""]:
    """−KL(with messages ‖ without) + a price of sending; of the message network alone."""
    assert isinstance(actor, TemActor), "TEM's own actor"
    only = eqx.tree_at(lambda actor: actor.messenger, stop_gradient(actor), actor.messenger)

    def step(state: TemState, graph: Graph) -> tuple:
        policy, after, sends = only.step(graph, state)
        # The effect must not come from acting differently when nothing was received.
        without = stop_gradient(only.step(graph, without_messages(state))[0])
        effect = jnp.minimum(kl_divergence(policy, without), MAX_EFFECT)
        return after, (effect.mean(), sends.mean())

    def chunk(graphs: Graph, state: TemState) -> tuple[Float[Array, " L"], Float[Array, " L"]]:
        return jax.lax.scan(step, state, graphs)[1]

    count = jax.tree.leaves(batch.observations)[0].shape[0]
    few = jax.tree.map(
        lambda leaf: leaf[: max(1, count // CHUNK_DIVISOR)], (batch.observations, batch.recurrent)
    )
    effect, sends = jax.vmap(chunk)(*few)
    return EFFECT_WEIGHT * (SEND_PRICE * sends.mean() - effect.mean())


TEM = ppo_algorithm(
    "tem",
    "PPO with message chains read by a Transformer (our reconstruction)",
    PpoConfig(
        epochs=5,
        actor=TemActorConfig(),
        critics=CriticFitConfig(critic=CriticConfig(), epochs=4),
    ),
    Variant(credit_reward, auxiliary_loss=message_loss),
)
