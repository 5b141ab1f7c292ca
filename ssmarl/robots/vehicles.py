"""Vehicles by name. A user's own live in the user's own file (docs/robots.md)."""

from ssmarl.core.registry import Registry
from ssmarl.robots.differential import DifferentialDrive
from ssmarl.robots.mecanum import Mecanum
from ssmarl.robots.pid import PidConfig
from ssmarl.robots.supervisor import SupervisorConfig
from ssmarl.robots.vehicle import Scale, Vehicle
from ssmarl.robots.velocity import VelocityFilterConfig

ROVERC = Vehicle(
    name="roverc",
    summary="M5Stack RoverC: four Mecanum wheels, the paper's vehicle",
    drive=Mecanum(),
    radius=0.053,
    scale=Scale(metres=0.6, seconds=6.0),
    pid=PidConfig(),
    supervisor=SupervisorConfig(),
    filter=VelocityFilterConfig(),
    deceleration=1.0,
    driver="i2c",
)
"""A body of 75 mm × 75 mm has to fit into the policy's agents of radius 0.1, hence 0.6 m a unit;
its 0.35 m/s then allow the policy's 2.83 units/s only if a second of the policy takes 4.8 s or
more: 6 s leave a fifth of the speed to the loops."""

UNICYCLE = Vehicle(
    name="unicycle",
    summary="two driven wheels; steers by turning, its centre 3 cm ahead of the axle",
    drive=DifferentialDrive(),
    radius=0.053,
    scale=Scale(metres=0.6, seconds=6.0),
    pid=PidConfig(max_speed=0.33),
    supervisor=SupervisorConfig(),
    filter=VelocityFilterConfig(),
    deceleration=1.0,
)

VEHICLES: Registry[Vehicle] = Registry("vehicle", Vehicle, [ROVERC, UNICYCLE])
