"""The allowed action nearest to a nominal one: propose, verify, and bisect.

Allowed actions need not form a convex set, because braking is only piecewise linear in the speed.
So half-planes of actions (the rule, linearised at some action) only propose; every proposal is
verified with the exact rule, and where it fails the segment from an allowed action to it is
bisected. Braking is the first allowed action and the last resort.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ssmarl.control.certificate import Rule
from ssmarl.control.compaction import flat_under_vmap, map_selected
from ssmarl.control.half_planes import HalfPlanes
from ssmarl.env.dynamics.base import MAX_ACTION, bound_action
from ssmarl.env.geometry import direction, dot, length

TIGHTEST = 5
"""Neighbours whose half-planes make a proposal: those with the least room."""
INSET = 1e-6
"""Metres by which proposals stay inside the rule, so that rounding does not refuse them."""
ROUNDING = 1e-6
"""Metres by which braking, the last resort, may miss the rule by rounding."""
TOLERANCE = 1e-6
"""By which a proposal may cross a half-plane of actions, for rounding."""
SETTLED = 1e-4
"""Change of an action, relative to the action limit, below which linearising again changes
nothing."""
PARALLEL = 1e-4
"""Sine of the angle between borders below which they do not cross."""
OUTSIDE = 1e4
"""Weight of being outside against the squared distance from the nominal action."""
BISECTIONS = 6
"""Of the segment from an allowed action to a proposal."""
GRID = 9
"""Actions per axis of the coarse grid that proposes where the response is not linear."""
ROUNDS = 2
"""Of linearisation at an allowed action, after one at the nominal; twice as many where braking is
not piecewise linear (in a disc of actions, or without linear response)."""


def nearest_allowed(
    rule: Rule, nominal: Float[Array, "A 2"], chunk: int | None = None
) -> tuple[Float[Array, "A 2"], Bool[Array, " A"]]:
    """Every agent's allowed action nearest to a nominal one, and whether it is allowed.

    It is braking, and may not be allowed, where braking is not: only if an assumption fails. Agents
    whose nominal action is allowed take it; of the others `chunk` at once (None: by their number)
    first try what costs little (`settle`), and search where that does not suffice. Gradients pass
    where the nominal action is allowed.
    """
    nominal = bound_action(rule.params, nominal)
    direct = rule.allows(rule.path(nominal))

    def few(rule: Rule, nominal: Float[Array, "A 2"], direct: Bool[Array, " A"]) -> tuple:
        rows, done = (rule, nominal), (nominal, direct)
        done = map_selected(lambda some: settle(*some), rows, ~direct, done, chunk)
        return map_selected(lambda some: search(*some), rows, ~done[1], done, chunk)

    found, allowed = flat_under_vmap(few)(*jax.lax.stop_gradient((rule, nominal, direct)))
    return jnp.where(direct[:, None], nominal, found), allowed


def settle(
    rule: Rule, nominal: Float[Array, "A 2"]
) -> tuple[Float[Array, "A 2"], Bool[Array, " A"]]:
    """The best action of the rule linearised at the nominal one, and whether it may be taken.

    It may if it is allowed and still the best after linearising again there, so that searching
    would not leave it.
    """

    def propose(_: Any, carry: tuple) -> tuple:
        at, _ = carry
        return bound_action(rule.params, nearest_point(linearised(rule, at), nominal)), at

    again, action = jax.lax.fori_loop(0, 2, propose, (nominal, nominal))
    limit = rule.params.nominal_limit
    same = length(again - action) <= SETTLED * limit
    return action, same & rule.allows(rule.path(action))


def search(
    rule: Rule, nominal: Float[Array, "A 2"]
) -> tuple[Float[Array, "A 2"], Bool[Array, " A"]]:
    """The nearest allowed action: rounds of proposals and bisection, from braking on."""
    brake = bound_action(rule.params, rule.dynamics.brake(rule.params, rule.body))
    linear = rule.dynamics.linear_response(rule.params) is not None
    start = brake if linear else _nearer(nominal, brake, coarse(rule, nominal))

    def improved(_: Any, carry: tuple) -> tuple:
        best, at = carry
        best = improve(rule, best, at, nominal)
        return best, best

    # The first round linearises at the nominal action, the others at the best one so far.
    piecewise_linear = linear and rule.params.action_bound == "box"
    rounds = ROUNDS if piecewise_linear else 2 * ROUNDS
    best, _ = jax.lax.fori_loop(0, 1 + rounds, improved, (start, nominal))
    best = advance(rule, best, nominal)
    return best, rule.allows(rule.path(best), ROUNDING)


def coarse(rule: Rule, nominal: Float[Array, "A 2"]) -> Float[Array, "A 2"]:
    """The nearest allowed action of a coarse grid, far away if none is allowed.

    Where the velocity is not linear in the action, the allowed ones may come in several parts.
    """
    limit = rule.params.nominal_limit
    axis = np.linspace(-limit, limit, GRID, dtype=np.float32)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    far = jnp.full_like(nominal, MAX_ACTION)

    def consider(best: Float[Array, "A 2"], point: Float[Array, " 2"]) -> tuple:
        action = bound_action(rule.params, jnp.broadcast_to(point, nominal.shape))
        allowed = rule.allows(rule.path(action))[:, None]
        return _nearer(nominal, best, jnp.where(allowed, action, far)), None

    return jax.lax.scan(consider, far, grid)[0]


def advance(
    rule: Rule, allowed: Float[Array, "A 2"], wanted: Float[Array, "A 2"]
) -> Float[Array, "A 2"]:
    """The last allowed action that bisection finds on the segment from `allowed` to `wanted`."""

    def at(t: Float[Array, " A"]) -> Float[Array, "A 2"]:
        return allowed + t[:, None] * (wanted - allowed)

    def bisect(_: Any, span: tuple) -> tuple:
        low, high = span
        middle = 0.5 * (low + high)
        good = rule.allows(rule.path(at(middle)))
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    whole = rule.allows(rule.path(wanted))
    zero = jnp.zeros_like(allowed[:, 0])
    low, _ = jax.lax.fori_loop(0, BISECTIONS, bisect, (zero, zero + 1))
    return jnp.where(whole[:, None], wanted, at(low))


def improve(
    rule: Rule,
    allowed: Float[Array, "A 2"],
    at: Float[Array, "A 2"],
    nominal: Float[Array, "A 2"],
) -> Float[Array, "A 2"]:
    """From an allowed action towards the best one of the rule linearised at an action."""
    point = nearest_point(linearised(rule, at), nominal)
    found = _nearer(nominal, allowed, advance(rule, allowed, bound_action(rule.params, point)))
    if rule.params.action_bound == "disc":
        # Bounded along the segment instead of radially, it stays on the border of the rule.
        on_disc = _until(rule.params.hard_limit, allowed, point)
        found = _nearer(nominal, found, advance(rule, allowed, on_disc))
    return found


def linearised(rule: Rule, at: Float[Array, "A 2"]) -> HalfPlanes:
    """The rule as half-planes of actions near `at`: tightest neighbours, reach, action bound.

    Of every neighbour the position that is farthest beyond its line (or nearest to it) counts.
    """
    path, derivative = jax.linearize(rule.path, at)
    dx, dy = (derivative(jnp.zeros_like(at).at[:, axis].set(1.0)).position for axis in (0, 1))

    excess = rule.excess(path)
    worst = excess.argmax(axis=-1)[..., None]
    excess = jnp.take_along_axis(excess, worst, axis=-1)[..., 0] + INSET
    gradient = jnp.stack([_along(rule.normal, d, worst) for d in (dx, dy)], axis=-1)
    neighbours = _planes(gradient, excess, at)
    if excess.shape[1] > TIGHTEST:
        room = jnp.where(neighbours.present, _room(neighbours, at), jnp.inf)
        _, few = jax.lax.top_k(-room, TIGHTEST)
        neighbours = jax.tree.map(
            lambda leaf: jnp.take_along_axis(
                leaf, few.reshape(few.shape + (1,) * (leaf.ndim - 2)), axis=1
            ),
            neighbours,
        )

    distance = length(path.position)
    farthest = distance.argmax(axis=1)[:, None]
    outward = direction(path.position)
    stretch = jnp.stack([dot(outward, d) for d in (dx, dy)], axis=-1)
    within = _planes(
        jnp.take_along_axis(stretch, farthest[..., None], axis=1),
        jnp.take_along_axis(distance, farthest, axis=1) - rule.reach + INSET,
        at,
    )
    planes = [neighbours, within, _action_bound(rule, at)]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *planes)


def nearest_point(planes: HalfPlanes, nominal: Float[Array, "A 2"]) -> Float[Array, "A 2"]:
    """The point nearest to a nominal one inside all half-planes, or one little outside.

    It is the nominal point, or on a border i: x = bᵢ·nᵢ + t·dᵢ with dᵢ ⟂ nᵢ, where every other
    half-plane bounds t from one side. The nearest t within these bounds is that of the nominal
    point, clipped. Where they leave nothing, the middle between them is tried.
    """
    x, y = planes.normal[..., 0], planes.normal[..., 1]
    # [i, j]: half-plane j along border i is slope·t ≤ room.
    slope = x[:, :, None] * y[:, None] - y[:, :, None] * x[:, None]
    along = x[:, :, None] * x[:, None] + y[:, :, None] * y[:, None]
    room = planes.bound[:, None] - planes.bound[:, :, None] * along
    crosses = planes.present[:, None] & (jnp.abs(slope) > PARALLEL)
    at = room / jnp.where(crosses, slope, 1.0)
    high = jnp.where(crosses & (slope > 0), at, MAX_ACTION).min(axis=-1)
    low = jnp.where(crosses & (slope < 0), at, -MAX_ACTION).max(axis=-1)
    own = x * nominal[:, None, 1] - y * nominal[:, None, 0]
    t = jnp.where(low <= high, jnp.clip(own, low, high), 0.5 * (low + high))
    on_border = jnp.stack([planes.bound * x - t * y, planes.bound * y + t * x], axis=-1)
    points = jnp.concatenate([nominal[:, None], on_border], axis=1)
    usable = jnp.concatenate([jnp.ones_like(planes.present[:, :1]), planes.present], axis=1)

    outside = dot(points[:, :, None], planes.normal[:, None]) - planes.bound[:, None]
    outside = jnp.where(planes.present[:, None], outside, -jnp.inf).max(axis=-1)
    apart = points - nominal[:, None]
    cost = dot(apart, apart)
    # Opposite half-planes may leave no point by rounding: little outside is still worth a trial.
    cost = cost + OUTSIDE * jax.nn.relu(outside - TOLERANCE)
    chosen = jnp.where(usable, cost, jnp.inf).argmin(axis=1)[:, None, None]
    return jnp.take_along_axis(points, chosen, axis=1)[:, 0]


def _until(
    limit: float, inside: Float[Array, "A 2"], point: Float[Array, "A 2"]
) -> Float[Array, "A 2"]:
    """The point itself, or where the segment to it from inside leaves the disc of that radius."""
    step = point - inside
    square, half = dot(step, step), dot(inside, step)
    room = jnp.maximum(limit**2 - dot(inside, inside), 0.0)
    root = jnp.sqrt(half**2 + square * room)
    part = jnp.clip((root - half) / jnp.maximum(square, 1e-12), 0.0, 1.0)
    return inside + part[:, None] * step


def _action_bound(rule: Rule, at: Float[Array, "A 2"]) -> HalfPlanes:
    """The square of actions; of a disc also the tangent in the direction of `at`."""
    limit = rule.params.hard_limit
    sides = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)
    normal = jnp.broadcast_to(jnp.asarray(sides), (at.shape[0], 4, 2))
    if rule.params.action_bound == "disc":
        normal = jnp.concatenate([normal, direction(at)[:, None]], axis=1)
    present = length(normal) > 0
    return HalfPlanes(normal, jnp.full(normal.shape[:2], limit), present)


def _planes(
    gradient: Float[Array, "A M 2"], excess: Float[Array, "A M"], at: Float[Array, "A 2"]
) -> HalfPlanes:
    """Excess + gradient·(u − at) ≤ 0 with unit normals; absent where the action has no effect."""
    size = length(gradient)
    present = (size > 1e-6) & jnp.isfinite(excess)
    safe = jnp.where(present, size, 1.0)
    normal = gradient / safe[..., None]
    bound = dot(normal, at[:, None]) - jnp.where(present, excess, 0.0) / safe
    return HalfPlanes(normal, bound, present)


def _room(planes: HalfPlanes, at: Float[Array, "A 2"]) -> Float[Array, "A M"]:
    """Distance from an action to the borders, negative beyond them."""
    return planes.bound - dot(planes.normal, at[:, None])


def _nearer(
    nominal: Float[Array, "A 2"], one: Float[Array, "A 2"], other: Float[Array, "A 2"]
) -> Float[Array, "A 2"]:
    """Of two actions the one nearer to the nominal."""
    closer = length(other - nominal) < length(one - nominal)
    return jnp.where(closer[:, None], other, one)


def _along(
    normal: Float[Array, "A M 2"], change: Float[Array, "A P 2"], worst
) -> Float[Array, "A M"]:
    """n·∂x/∂u at the worst position of every neighbour."""
    every = dot(normal[:, :, None], change[:, None])
    return jnp.take_along_axis(every, worst, axis=-1)[..., 0]
