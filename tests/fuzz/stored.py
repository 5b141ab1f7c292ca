"""Target: the bytes of policies and checkpoints."""

import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
from safetensors.numpy import load_file, save_file

from ssmarl.algos.ssmarl_config import SsmarlConfig
from ssmarl.core.serialization import ENTRY, read_metadata
from ssmarl.eval.policies import env_for
from ssmarl.nets.actor import RecurrentActorConfig
from ssmarl.nets.gnn import GraphEncoderConfig
from ssmarl.policy.policy import FILE, Policy, load
from ssmarl.train.config import TrainConfig
from ssmarl.train.evaluation import keep_unevaluated
from ssmarl.train.files import CHECKPOINT, load_checkpoint, save_checkpoint
from ssmarl.train.run import initial_state
from tests.fuzz.harness import Accepted, Try, changed, damaged

ACTOR = RecurrentActorConfig(
    GraphEncoderConfig(embedding=2, hidden=4, widths=(4, 8), message=8), recurrent_size=4
)
CONFIG = TrainConfig(num_agents=(2,), settings=SsmarlConfig(num_envs=4, actor=ACTOR))


def write_run(folder: Path) -> None:
    """A policy and a checkpoint, untrained."""
    state = initial_state(CONFIG)
    keep_unevaluated(CONFIG, folder, CONFIG.algorithm.policy(state), 0)
    save_checkpoint(folder, state, {"iterations": 0, "seconds": 0.0, "best": None})


@contextlib.contextmanager
def target() -> Iterator[Try]:
    """Tries on the files of one run."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("evil.py").write_text("open('executed', 'w').close()\n")
        folder = Path("run")
        write_run(folder)
        whole = {file: (folder / file).read_bytes() for file in (FILE, str(CHECKPOINT))}
        shapes = jax.eval_shape(lambda: initial_state(CONFIG))

        def attempt(generator: random.Random) -> None:
            file = generator.choice(list(whole))
            path = folder / file
            if file == FILE and generator.random() < 0.4:
                path.write_bytes(whole[file])
                _change_metadata(generator, path)
                policy = load(path)  # its checksum is missing: an older file, which may be right
                _use(policy)
                return
            content = damaged(generator, whole[file])
            path.write_bytes(content)
            if file == FILE:
                load(path)
            else:
                load_checkpoint(folder, shapes)
                read_metadata(path)
            if content != whole[file]:
                raise Accepted(f"a damaged {file}")

        yield attempt


def _change_metadata(generator: random.Random, path: Path) -> None:
    """Change what the file says of itself, and leave out its checksum as older versions did."""
    metadata = changed(generator, read_metadata(path))
    save_file(load_file(path), path, metadata={ENTRY: json.dumps(metadata)})


def _use(policy: Policy) -> None:
    """Build the world that the policy asks for."""
    env_for(policy.metadata)
    policy.initial_state(policy.metadata.num_agents)
    if Path("executed").exists():
        Path("executed").unlink()
        raise Accepted("a policy that runs a file")
