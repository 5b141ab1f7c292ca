"""Dynamics by name. A user's own live in the user's own file (docs/extending.md)."""

from ssmarl.core.registry import Registry
from ssmarl.env.dynamics.base import Dynamics
from ssmarl.env.dynamics.double_integrator import DoubleIntegrator
from ssmarl.env.dynamics.unicycle import Unicycle

DYNAMICS: Registry[Dynamics] = Registry("dynamics", Dynamics, [DoubleIntegrator(), Unicycle()])
