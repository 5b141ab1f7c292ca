# Everything happens in the project's own .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax

.PHONY: run test test-env test-rest test-slow lint bench format clean

RUN := runs/navigation
# 3 agents: first in the scenario's own world, then also in a smaller one, where agents meet, and in
# a wide and crowded one, where ways are long. That is what teams of 96 need (docs/training.md).
TRAIN := --num-agents 3 --num-obstacles 3 2 20 --room 1 0.75 1.8 --warm-up 0.25 --obstacle-slots 6 \
	--cost-limit 0.3 --steps 1_600_000 \
	--set path.detours=true path.foresight.pull=2.5 path.foresight.impatience=6 actor.patience=15

run: .venv/installed  ## train on 3 agents, evaluate on up to 96, draw; goes on where it stopped
	@if [ -e $(RUN)/config.json ]; then $(BIN)/ssmarl train --resume $(RUN); \
	else $(BIN)/ssmarl train $(TRAIN) --out $(RUN); fi
	$(BIN)/ssmarl eval $(RUN) --num-agents 3 6 12 24 48 96 --episodes 100 --json $(RUN)/eval.json
	$(BIN)/ssmarl plot $(RUN) --out $(RUN)/plots/curves.png
	$(BIN)/ssmarl render $(RUN) --num-agents 24 --out $(RUN)/videos/navigation-n24.gif

# Most of the tests' time is compilation. XLA's older code generator, where this JAX still has it,
# compiles up to four times as fast, and without optimisation faster still; the world's own tests
# compare to the last bit what optimised kernels compute. Learning checks compile as users do.
QUICK := --xla_cpu_use_fusion_emitters=false
FLAGS = $(shell XLA_FLAGS=$(QUICK) $(BIN)/python -c 'import jax; jax.devices()' \
	> /dev/null 2>&1 && echo $(QUICK))
PYTEST := $(BIN)/pytest -n 2 --dist loadfile

test: .venv/installed-test  ## what CI runs
	$(MAKE) --jobs 2 lint test-env
	$(MAKE) test-rest

test-env: .venv/installed-test
	XLA_FLAGS="$(FLAGS)" $(PYTEST) tests/env tests/adapters

test-rest: .venv/installed-test
	XLA_FLAGS="$(FLAGS) --xla_backend_optimization_level=0" \
		$(PYTEST) --ignore tests/env --ignore tests/adapters

test-slow: test  ## learning checks too
	$(BIN)/pytest -n 2 -m slow

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed
	$(BIN)/ssmarl bench

clean:
	rm -rf .venv .cache build runs

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ssmarl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install --quiet --editable .
	@touch $@

.venv/installed-test: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch .venv/installed $@
