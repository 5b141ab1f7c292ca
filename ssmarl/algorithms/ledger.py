"""What costs have been so far: running means, and what limits that were exceeded are still owed."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ssmarl.types import Count, Scalar

MOST_DEBT = 0.5
"""Of a limit: what was exceeded long ago must not freeze the team for ever."""


class Ledger(eqx.Module):
    """One line per policy that takes a step, one column per row of its constraints."""

    cost: Float[Array, "turns rows"]
    """Running means of episode costs: of the pooled rows, or of each agent's own."""
    image: Float[Array, "turns rows"]
    """Running means of their smooth images, summed over an episode alike."""
    debt: Float[Array, "turns rows"]
    """By how much more than their excess costs are asked to fall: past excess, not made up yet."""
    weight: Float[Array, ""]
    """How much of the means is data yet: 1 in the long run."""

    @classmethod
    def blank(cls, turns: int, rows: int) -> "Ledger":
        """Before the first episode."""
        # An array each: iterations are handed their state for good, every buffer once.
        cost, image, debt = (jnp.zeros((turns, rows)) for _ in range(3))
        return cls(cost, image, debt, jnp.zeros(()))

    def entered(
        self,
        turn: Count | slice,
        cost: Float[Array, "*turns rows"],
        image: Float[Array, "*turns rows"],
        limit: Float[Array, " rows"],
        slack: Scalar,
        memory: float,
        make_up: float,
    ) -> "Ledger":
        """With the newest episodes' means taken in; right from the first ones on.

        A step lowers what it foresees of a cost, on one batch, to first order; what the reward
        gains by the rest always pushes the other way. Costs would therefore settle a little above
        their limits. The debt is the integral part of a controller that brings them there:

            debt ← debt + make_up · (newest cost − limit),  kept between 0 and MOST_DEBT · limit
        """
        keep = memory * self.weight

        def mean(old: Float[Array, "..."], newest: Float[Array, "..."]) -> Float[Array, "..."]:
            return (keep * old + (1 - memory) * newest) / (keep + 1 - memory)

        excess = cost - limit - slack
        debt = jnp.clip(self.debt[turn] + make_up * excess, 0.0, MOST_DEBT * limit)
        return Ledger(
            self.cost.at[turn].set(mean(self.cost[turn], cost)),
            self.image.at[turn].set(mean(self.image[turn], image)),
            self.debt.at[turn].set(debt),
            self.weight,
        )

    def closed(self, memory: float) -> "Ledger":
        """At the end of an iteration, when every line has its entry."""
        return Ledger(self.cost, self.image, self.debt, memory * self.weight + 1 - memory)
