"""Environment steps a second beside two peers: VMAS `navigation` and JaxMARL `simple_spread`.

    .venv/bin/python benchmarks/peers.py [--envs 32 1024 4096] [--agents 3] [--json FILE]

Each peer is installed from PyPI into an environment of its own under `build/peers`. One run
measures all three, one after another, on the same machine, at equal numbers of agents and
environments. One step = all agents of one environment advance once; the timed step is physics,
reward, cost (ours; the peers have none), auto-reset and observation (ours: the graph). Both JAX
libraries divide their environments over the same host devices; PyTorch uses all cores.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
PEERS = {"vmas": ["vmas"], "jaxmarl": ["jaxmarl"]}
STEPS = 200
REPEATS = 3


def interpreter(peer: str) -> Path:
    """A Python that has the peer installed."""
    folder = ROOT / "build" / "peers" / peer
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {peer} …", file=sys.stderr)
        venv.create(folder, with_pip=True)
        # A torch build that is on the machine already is preferred to a newer one (VMAS needs it).
        install = [str(python), "-m", "pip", "install", "--quiet"]
        if peer == "vmas" and "PEERS_TORCH" in os.environ:
            subprocess.run([*install, os.environ["PEERS_TORCH"]], check=True)
        subprocess.run([*install, *PEERS[peer]], check=True)
        done.touch()
    return python


def measure(python: Path | str, who: str, agents: int, envs: int) -> float:
    """Steps a second of one library, in a process of its own."""
    cores = len(os.sched_getaffinity(0))
    flags = f"--xla_force_host_platform_device_count={cores}"
    command = [str(python), __file__, "--worker", who, str(agents), str(envs)]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    if result.returncode:
        raise SystemExit(f"{who} failed:\n{result.stderr}")
    return float(result.stdout.splitlines()[-1])


def run_ssmarl(agents: int, envs: int) -> float:
    """Ours."""
    import ssmarl
    from ssmarl.bench.env import env_rate

    return env_rate(ssmarl.make("navigation", agents), envs, STEPS)


def run_jaxmarl(agents: int, envs: int) -> float:
    """`env.step` of JaxMARL resets by itself and returns the observations."""
    import jax
    import jax.numpy as jnp
    import jaxmarl  # pyright: ignore[reportMissingImports]
    from jax.sharding import AxisType, PartitionSpec

    env = jaxmarl.make(
        "MPE_simple_spread_v3", num_agents=agents, num_landmarks=agents, max_steps=100
    )
    devices = max(n for n in range(1, jax.device_count() + 1) if envs % n == 0)
    mesh = jax.make_mesh(
        (devices,), ("env",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices]
    )
    share = envs // devices
    key = jax.random.PRNGKey(0)
    actions = {
        name: jax.random.randint(jax.random.fold_in(key, i), (STEPS, envs), 0, 5)
        for i, name in enumerate(env.agents)
    }
    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(key, envs))

    def run(state, actions, key):
        key = jax.random.fold_in(key, jax.lax.axis_index("env"))

        def step(carry, now):
            state, seen = carry
            action, t = now
            keys = jax.random.split(jax.random.fold_in(key, t), share)
            obs, state, reward, done, _ = jax.vmap(env.step)(keys, state, action)
            leaves = jax.tree.leaves((obs, reward, done))
            return (state, seen + sum(jnp.sum(leaf, dtype=float) for leaf in leaves)), None

        times = jnp.arange(STEPS)
        (state, seen), _ = jax.lax.scan(step, (state, jnp.zeros(())), (actions, times))
        return state, seen[None]

    one, later = PartitionSpec("env"), PartitionSpec(None, "env")
    function = jax.jit(
        jax.shard_map(
            run,
            mesh=mesh,
            in_specs=(one, later, PartitionSpec()),
            out_specs=(one, one),
            check_vma=False,
        )
    )
    jax.block_until_ready(function(state, actions, key))
    return STEPS * envs / best(lambda: jax.block_until_ready(function(state, actions, key)))


def run_vmas(agents: int, envs: int) -> float:
    """VMAS leaves resetting to its user; all episodes end together, so one reset serves all."""
    import torch  # pyright: ignore[reportMissingImports]
    import vmas  # pyright: ignore[reportMissingImports]

    env = vmas.make_env(
        "navigation",
        num_envs=envs,
        n_agents=agents,
        device="cpu",
        continuous_actions=True,
        max_steps=100,
        seed=0,
    )
    actions = [[2 * torch.rand(envs, 2) - 1 for _ in range(agents)] for _ in range(STEPS)]

    def run():
        env.reset()
        with torch.no_grad():
            for action in actions:
                *_, done, _ = env.step(action)
                if bool(done.any()):
                    env.reset()

    run()
    return STEPS * envs / best(run)


def best(function) -> float:
    """Least seconds of a few calls."""
    import time

    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


WORKERS = {"ssmarl": run_ssmarl, "jaxmarl": run_jaxmarl, "vmas": run_vmas}


def main() -> None:
    """Measure everybody and print a table."""
    parser = argparse.ArgumentParser(
        description="Environment steps a second beside VMAS and JaxMARL."
    )
    parser.add_argument("--envs", type=int, nargs="+", default=[32, 1024, 4096])
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pythons = {"ssmarl": sys.executable, **{peer: interpreter(peer) for peer in PEERS}}
    rows = []
    print(f"{'environments':>12} " + " ".join(f"{who:>12}" for who in pythons))
    for envs in options.envs:
        rates = {who: measure(python, who, options.agents, envs) for who, python in pythons.items()}
        rows.append({"agents": options.agents, "envs": envs, **rates})
        print(f"{envs:>12} " + " ".join(f"{rate:>12,.0f}" for rate in rates.values()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _, _, who, agents, envs = sys.argv
        print(WORKERS[who](int(agents), int(envs)))
    else:
        main()
