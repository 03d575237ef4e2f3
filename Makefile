# Everything a developer or CI does. `make setup` once; the other targets call it when it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test test-all lint format docs clean

setup: $(READY)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

# In full precision, where drafting pays most; then as the file stores the model (4 bits).
demo: setup
	$(BIN)/medusa models pull smollm2
	$(BIN)/medusa compare --weights f32 --max-tokens 120 \
	  "Explain a B-tree in two sentences" \
	  "Write a Python function that checks whether a word is a palindrome" \
	  "List five tips for a good night's sleep"
	$(BIN)/medusa compare --max-tokens 120 "Explain a B-tree in two sentences"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Fast tests, the README's commands, and a smoke test on the real model. The last line printed is pytest's.
test: lint
	$(BIN)/medusa models pull smollm2
	$(BIN)/python -m pytest -m "not slow and not browser and (not model or smoke)"

# Triton compiles and interprets our GPU kernel, where there is one for this machine; without it those tests are skipped.
test-all: lint
	-$(BIN)/python -m pip install --quiet "triton>=3.4"
	$(BIN)/medusa models pull smollm2
	$(BIN)/python -m pytest -m ""

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python -m medusakit.cli.reference docs/cli.md

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
