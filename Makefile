# Every target first sets up what it needs in .venv (once; again when pyproject.toml changes).
# Needs Python 3.11 to 3.13 with pip; PYTHON=… chooses which.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help quickstart test lint docs check clean
BIN := .venv/bin

help: ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

quickstart: .venv/.installed-base ## Train BC and Fisher-BRC on the shipped data and compare them.
	$(BIN)/leeward quickstart

test: .venv/.installed-dev ## Run the tests.
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: .venv/.installed-dev ## Check style, types and spelling.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/codespell

docs: .venv/.installed-docs ## Build the documentation into site/.
	$(BIN)/zensical build --clean --strict

check: lint test docs ## All of lint, test and docs.

clean: ## Remove .venv, site and caches.
	rm -rf .venv site .cache .pytest_cache .ruff_cache

.venv/.installed-base: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh

.venv/.installed-%: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh $*
