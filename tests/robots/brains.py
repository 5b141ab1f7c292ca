"""What robots compute with, made once for all tests of a process."""

import functools

import ssmarl
from ssmarl.robots.decentral.brain import make_brain
from ssmarl.robots.room import random_room
from ssmarl.robots.vehicles import ROVERC

ROBOTS = 6


@functools.cache
def policy():
    return ssmarl.load("pretrained:navigation")


@functools.cache
def brain():
    env, _ = random_room(policy().metadata, ROVERC, ROBOTS, 0)
    return make_brain(policy(), env, ROVERC)


def room(seed):
    return random_room(policy().metadata, ROVERC, ROBOTS, seed)[1]
