"""Gradients that the compiler maps equal gradients computed one by one."""

import subprocess
import sys

import pytest

from ssmarl.core import compiler


def test_mapped_gradients_equal_looped_ones():
    """As ssmarl sets the compiler up; JAX 0.10.2 by itself is off by a quarter."""
    assert compiler.mapped_gradient_error() < compiler.TOLERANCE


def test_training_is_refused_where_they_do_not(monkeypatch):
    monkeypatch.setattr(compiler, "mapped_gradient_error", lambda: 0.25)
    compiler.check_compiler.cache_clear()
    with pytest.raises(compiler.InputError, match="off by 25%"):
        compiler.check_compiler()
    compiler.check_compiler.cache_clear()


def test_a_flag_that_the_user_has_set_is_left_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{compiler.FLAG}=LIBRARY_FUSION_TYPE_DOT")
    compiler.use_reliable_reductions()
    assert compiler.os.environ["XLA_FLAGS"] == f"--{compiler.FLAG}=LIBRARY_FUSION_TYPE_DOT"


def test_an_unknown_flag_is_not_set(monkeypatch):
    """XLA would end the process."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(compiler, "FLAG", "xla_cpu_no_such_setting_at_all")
    compiler.use_reliable_reductions()
    assert not compiler.os.environ["XLA_FLAGS"]


def test_the_flag_is_set_before_jax_compiles_anything():
    """Importing ssmarl touches no device, so the flag takes effect."""
    code = (
        "import ssmarl, jax; from jax._src import xla_bridge;"
        "assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
