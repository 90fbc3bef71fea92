# Two commands do everything on a machine that has Python and make: `make test` and `make run`.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: run test check format clean

run: $(READY)  ## the main job: train a small model with each unit and print a table
	$(BIN)/python examples/first_look.py

test: check  ## every check: format, lint, types, tests
	$(BIN)/python -m pytest -n 2

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment: made anew when what it is made of changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)
