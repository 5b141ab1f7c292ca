"""A training of seconds."""

import os

from ssmarl.algos.ssmarl_config import SsmarlConfig
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.train.config import TrainConfig

FLAGS = os.environ.get("XLA_FLAGS", "")
"""As this process started: commands tested before may have set more, too late for it."""
SMALL = SsmarlConfig(
    num_envs=4,
    chunk=3,
    actor=RecurrentActorConfig(
        GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8), recurrent_size=4
    ),
)
CONFIG = TrainConfig(
    num_agents=(2,),
    num_obstacles=(1,),
    episode_length=6,
    steps=6 * 4 * 6,
    settings=SMALL,
    evaluate_every=3,
    evaluate_episodes=4,
)
