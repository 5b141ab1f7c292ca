# Everything happens in the project's own .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax

.PHONY: run test test-env test-rest test-slow test-clients fuzz soak lint package docs docs-numbers bench format clean

RUN := runs/navigation

run: .venv/installed  ## train `navigation`, evaluate on up to 96 agents with and without the certificate, draw; resumes
	@if [ -e $(RUN)/config.json ]; then $(BIN)/ssmarl train --resume $(RUN); \
	else $(BIN)/ssmarl train --recipe navigation --out $(RUN); fi
	$(BIN)/ssmarl eval $(RUN) --num-agents 3 6 12 24 48 96 --episodes 100 --json $(RUN)/eval.json
	$(BIN)/ssmarl eval $(RUN) --filter certificate --num-agents 3 6 12 24 48 96 \
		--episodes 100 --json $(RUN)/eval-certificate.json
	$(BIN)/ssmarl plot $(RUN) --out $(RUN)/plots/curves.png
	$(BIN)/ssmarl render $(RUN) --filter certificate --num-agents 24 --out $(RUN)/videos/navigation-n24.gif

# Most of the tests' time is compilation. XLA's older code generator, where this JAX still has it,
# compiles up to four times as fast, and without optimisation faster still; the tests of the
# environment compare bit by bit what optimised kernels compute. Learning checks compile as users do.
QUICK := --xla_cpu_use_fusion_emitters=false
FLAGS = $(shell XLA_FLAGS=$(QUICK) $(BIN)/python -c 'import jax; jax.devices()' \
	> /dev/null 2>&1 && echo $(QUICK))
PYTEST := $(BIN)/pytest -n 2 --dist loadfile

test: .venv/installed-test  ## what CI runs
	$(MAKE) --jobs 2 lint test-env
	$(MAKE) test-rest
	$(MAKE) --jobs 2 package docs

test-env: .venv/installed-test
	XLA_FLAGS="$(FLAGS)" $(PYTEST) tests/env tests/adapters

test-rest: .venv/installed-test
	XLA_FLAGS="$(FLAGS) --xla_backend_optimization_level=0" \
		$(PYTEST) --ignore tests/env --ignore tests/adapters

test-slow: test  ## learning checks too
	$(BIN)/pytest -n 2 -m slow

# Other libraries' learners, each in an environment of its own beside the project's.
CLIENTS := torchrl sb3 pyg jaxmarl
test-clients: $(CLIENTS:%=test-client-%)  ## TorchRL, Stable-Baselines3, PyTorch Geometric, JaxMARL

test-client-%: .venv/clients/%/installed
	cd examples/clients && ../../.venv/clients/$*/bin/python -m pytest -q -c ../../pyproject.toml \
		-W default test_$*.py

.venv/clients/%/installed: examples/clients/requirements/%.txt pyproject.toml | .venv/bin/pip
	$(BIN)/python -m venv .venv/clients/$*
	.venv/clients/$*/bin/pip install --quiet --requirement $<
	.venv/clients/$*/bin/pip install --quiet --editable .
	@touch $@

.PRECIOUS: .venv/clients/%/installed

TRIES := 10000
SEED := 0
fuzz: .venv/installed-test  ## malformed input of every kind: make fuzz TRIES=10000 SEED=0
	XLA_FLAGS="$(FLAGS) --xla_backend_optimization_level=0" \
		$(BIN)/python -m tests.fuzz --tries $(TRIES) --seed $(SEED)

soak: .venv/installed-test  ## hours: kills, races for a run directory, the viewer's memory
	$(BIN)/python -m tests.soak kills --count 100
	$(BIN)/python -m tests.soak races --count 1000
	$(BIN)/python -m tests.soak viewer --minutes 60

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

package: .venv/installed-test  ## build sdist and wheel; install the wheel apart and use it
	rm -rf build/package && mkdir -p build/package
	$(BIN)/python -m build --outdir build/package/dist . > build/package/build.log
	$(BIN)/pip install --quiet --no-deps --target build/package/installed build/package/dist/*.whl
	cd build/package && PYTHONPATH=installed ../../$(BIN)/python -c 'import ssmarl; \
		assert "installed" in ssmarl.__file__, ssmarl.__file__; \
		from importlib.resources import files; \
		assert (files("ssmarl.viz.live") / "page" / "page.html").is_file(); \
		print(ssmarl.load("pretrained:navigation").metadata.scenario, "loads from the wheel")'

docs-numbers: .venv/installed  ## renew tables of README and docs, and pages of experiments, from results/
	$(BIN)/python tools/tables.py
	$(BIN)/python tools/pages.py

docs: .venv/installed-test  ## build the documentation site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site

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
