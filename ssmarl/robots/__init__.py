"""From a policy to vehicles: kinematics, tracking, poses, supervision, drivers (docs/robots.md)."""

from ssmarl.robots.controller import Controller
from ssmarl.robots.node import PoseFrame
from ssmarl.robots.room import Room, random_room, room_from_layout
from ssmarl.robots.vehicle import Drive, Scale, Vehicle
from ssmarl.robots.vehicles import VEHICLES

__all__ = [
    "VEHICLES",
    "Controller",
    "Drive",
    "PoseFrame",
    "Room",
    "Scale",
    "Vehicle",
    "random_room",
    "room_from_layout",
]
