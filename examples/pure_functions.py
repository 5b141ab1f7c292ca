"""The environment as pure functions: a thousand episodes in one compiled call."""

import jax

import ssmarl
from ssmarl.control.drivers import straight

env = ssmarl.make("navigation", num_agents=3, constraints=["collision=1", "speed=5,v_max=1.2"])


def episode(key):
    """Team reward, cost per constraint, and whether everybody arrived."""

    def step(state, key):
        return env.step(state, straight(env, state, key))

    start, *keys = jax.random.split(key, 1 + env.params.episode_length)
    _, result = jax.lax.scan(step, env.reset(start), jax.numpy.stack(keys))
    arrived = (result.distance[-1] < env.params.arrival_radius).all()
    return result.reward.sum(), result.cost.sum(axis=0).mean(axis=0), arrived


reward, cost, arrived = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 1000))
print(f"team reward {reward.mean():.0f}, success {arrived.mean():.1%}")
for constraint, value in zip(env.constraints, cost.mean(axis=0), strict=True):
    print(f"{constraint.name}: {value:.2f} per agent and episode, limit {constraint.limit:g}")
