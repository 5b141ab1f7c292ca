"""Files of arrays: damage is noticed wherever it is."""

import jax.numpy as jnp
import pytest

from ssmarl import InputError
from ssmarl.core.serialization import load_tree, save_tree


def test_every_single_flipped_bit_of_a_file_is_noticed(tmp_path):
    tree = {"weights": jnp.arange(6.0).reshape(2, 3), "count": jnp.array(3)}
    path = tmp_path / "tree.safetensors"
    save_tree(path, tree, {"format": 2, "about": ["any", None]})
    whole = path.read_bytes()
    assert load_tree(path, tree)["count"] == 3
    accepted = []
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        try:
            load_tree(path, tree)
        except InputError:
            continue
        accepted.append(bit)
    assert not accepted


def test_a_file_that_lost_the_name_of_its_checksum_is_damaged_not_old(tmp_path):
    path = tmp_path / "tree.safetensors"
    save_tree(path, {"x": jnp.zeros(3)}, {})
    path.write_bytes(path.read_bytes().replace(b'"sha256"', b'"sha257"'))
    with pytest.raises(InputError, match="damaged"):
        load_tree(path, {"x": jnp.zeros(3)})
