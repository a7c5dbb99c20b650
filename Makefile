# Each target makes its own virtual environment in .venv. PYTHON names another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml $(shell find framework partitioner providers -name '*.py' -o -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

.PHONY: demo test check bench clean

demo: $(STAMP)
	$(BIN)/python examples/file_types.py README.md Makefile pyproject.toml LICENSE

test: $(STAMP)
	$(BIN)/python -m pytest -q

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/sizes.py

bench: $(STAMP)
	$(BIN)/pip install -q ".[bench]"
	$(BIN)/python tests/bench/latency.py

$(STAMP): $(SOURCES)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build
