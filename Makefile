# The two commands a newcomer needs; each makes the environment it runs in (Python 3.10 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint real-size bench clean

demo: $(VENV)/demo
	$(BIN)/python -m mm3 demo

test: $(VENV)/test lint
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

real-size: $(VENV)/test
	$(BIN)/python -m pytest -m slow -s

bench: $(VENV)/test
	$(BIN)/python benchmarks/run.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo: requirements-demo.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -r requirements-demo.txt
	@touch $@

$(VENV)/test: tests/requirements.txt requirements-demo.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -r tests/requirements.txt
	@touch $@ $(VENV)/demo

clean:
	rm -rf $(VENV) mm3-demo
