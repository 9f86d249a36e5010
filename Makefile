# Every command sets up .venv itself; the second time at once. PYTHON chooses the interpreter that it is made with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all long lowest lint docs fix bench exhaustive toolkit fuzz gpu clean

demo: $(VENV)/demo
	$(BIN)/aclnn demo

# Two processes, with a whole file in one: what its tests share is made once. Long files come first (conftest.py).
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/test
	$(PYTEST) --sample $(ARGS)

test-all: $(VENV)/test $(VENV)/npu
	$(PYTEST) $(ARGS)

long: $(VENV)/long $(VENV)/npu
	$(PYTEST) -m long $(ARGS)

# With the oldest dependencies allowed, for which it takes an environment of its own.
lowest: $(VENV)/test
	$(BIN)/python tests/helpers/lowest.py $(ARGS)

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

fix: $(VENV)/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/test
	$(BIN)/python -m benchmarks.run $(ARGS)

exhaustive: $(VENV)/test
	$(BIN)/python -m benchmarks.exhaustive $(ARGS)
	$(BIN)/python -m benchmarks.general

toolkit: $(VENV)/demo
	$(BIN)/pip install --quiet --editable '.[toolkit]'
	$(BIN)/aclnn toolkit build $(ARGS)

fuzz: $(VENV)/test
	$(BIN)/python -m tests.c.fuzz $(ARGS)

# Uses the PyTorch and Triton of the interpreter given and installs nothing.
OUT ?= gpu-results
gpu:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m benchmarks.gpu --out $(OUT) $(ARGS)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "aclnn needs Python 3.10 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# A stamp for each set of packages: made again when what they are made from changes. The tests' set has the demo's.
$(VENV)/demo: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo]'
	touch $@

$(VENV)/docs: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENV)/npu: pyproject.toml constraints.txt | $(VENV)/test
	$(BIN)/python tests/npu/environment.py $(VENV)/torch-npu
	touch $@

$(VENV)/long: pyproject.toml constraints.txt | $(VENV)/test
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[long]'
	touch $@

$(VENV)/test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,lint]' torch
	touch $(VENV)/demo $@
