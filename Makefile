# With Python and make, two commands do everything: `make test` and `make run`.
PYTHON ?= python3
VENV ?= .venv
LAYERS ?= .layers
LAYERS_TESTS ?= tests/base tests/recurrent tests/run/test_parity.py tests/test_golden.py tests/test_laws.py
TORCH ?= newest
READY := $(VENV)/.ready
IN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(IN)

.PHONY: run test quick check types format bench docs soak targets layers dist compat clean

# Threads that wait must not spin: on a busy machine they would take the cores from those that work.
run: $(READY)  ## light units against nn.LSTM, the same width and the same seconds: a table, a page, a program in C
	OMP_WAIT_POLICY=passive $(BIN)/linnet race $(RUN)

test: check  ## every check: format, lint, types, tests
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal

quick: $(READY)  ## the tests of what changed, in less than two minutes; QUICK="--list" to see which
	OMP_WAIT_POLICY=passive $(BIN)/python -m tools.quick $(QUICK)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

types: $(READY)  ## write linnet/units/__init__.pyi, the units as type checkers see them
	$(BIN)/python -m tools.stubs

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure speed and memory, about twenty minutes, and write the tables of the READMEs
	$(BIN)/python -m benchmarks --what all --plot $(BENCH)
	$(BIN)/python -m tools.pages

docs: $(READY)  ## build the site in docs/_build/html: every example of the gallery runs, a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "the site is in docs/_build/html/index.html"

soak: $(READY)  ## an hour of random cases, then kills of every command that trains; SOAK="--minutes 5 --kills 1" for less
	$(BIN)/python -m tools.soak $(SOAK)

targets: $(READY)  ## every unit in C, JavaScript and WebAssembly, by every available compiler and machine
	$(BIN)/python -m tools.targets $(TARGETS)

layers:  ## the tests of layers and kernels with another Python or torch: PYTHON=python3.13 TORCH=2.10.0
	$(PYTHON) -m venv $(LAYERS)
	$(LAYERS)/$(IN)/python -m pip install --quiet -e ".[test]" "torch$(if $(filter-out newest,$(TORCH)),==$(TORCH))"
	OMP_WAIT_POLICY=passive $(LAYERS)/$(IN)/python -m pytest -n 2 --dist worksteal $(LAYERS_TESTS)

dist: $(READY)  ## build and check the wheel and the sdist, and try both; DIST="--python python3.13" with another Python
	$(BIN)/python -m tools.dist $(DIST)

compat: $(READY)  ## other libraries with Linnet, in environments of their own; COMPAT="skorch darts" for some of them, COMPAT="forecasts" for forecasts
	$(BIN)/python -m tools.compat $(COMPAT)

clean:
	rm -rf $(VENV) $(LAYERS) .compat dist docs/_build docs/gallery docs/units docs/reference.md .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment, rebuilt when its versions change.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)
