# `make demo` and `make test` do all their own set-up from a fresh clone and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all lint format clean

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing mirrormark into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/mirrormark demo --out demo

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test: lint
	@# Two workers that each take all cores would wait for one another.
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

test-all: lint
	$(BIN)/pytest -m ""

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache
