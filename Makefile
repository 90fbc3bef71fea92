# Two commands do everything on a machine that has Python and make: `make test` and `make run`.
PYTHON ?= python3
VENV ?= .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: run test check format bench soak clean

run: $(READY)  ## the main job: language models of six units at one budget; a table, samples, a page
	$(BIN)/linnet compare $(RUN)

test: check  ## every check: format, lint, types, tests
	$(BIN)/python -m pytest -n 2

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure everything, about ten minutes; the rows, the plot and the README's tables
	$(BIN)/linnet bench --what all --plot $(BENCH)
	$(BIN)/python -m tools.pages

soak: $(READY)  ## an hour of random cases; SOAK="--minutes 5 --seed 1" for another length or seed
	$(BIN)/python -m tools.soak $(SOAK)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment: made anew when what it is made of changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)
