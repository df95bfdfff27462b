# Python 3.11 or newer and make are all that is needed. PYTHON=python3.12 names another interpreter.
VENV ?= .venv
RUN = $(VENV)/bin
LOCK = $(VENV)/lock/bin/uv pip compile -q --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
.PHONY: help install up test test-stores test-processes test-pages check test-unit migrate docs bench chaos screenshots screenshots-outage lock
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' Makefile

install: # the virtual environment; at once when nothing changed
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	echo "Tidings needs Python 3.11 or newer; $(PYTHON) is older or missing. Name another: PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) admin/local/install.py $(VENV) "$(origin PYTHON)"

up: install ## run everything on this machine: servers, schema, all processes, a demo key
	@exec $(RUN)/python -m admin.local up $(ARGS)

test: check ## all that CI runs: check, then unit, integration and system tests on real servers
	$(RUN)/pytest tests/unit
	@$(MAKE) --no-print-directory -j3 test-stores test-processes test-pages

test-stores: # side by side with those of whole processes and of the pages, which mostly wait
	$(RUN)/pytest tests/integration tests/test_house_rules.py

# what they say comes in one piece at their end: two progresses in one terminal cannot be read
test-processes test-pages: test-%:
	@said=$$(mktemp); $(RUN)/pytest $(TESTS) >"$$said" 2>&1; code=$$?; cat "$$said"; rm -f "$$said"; exit $$code

test-processes: TESTS = tests/system
test-pages: TESTS = tests/browser

check: install ## formatting, lint, strict types, import contracts (below 30 s)
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports

test-unit: install ## the tests that need no server (below 10 s)
	$(RUN)/pytest tests/unit

migrate: install ## bring the database's schema up to date
	@$(RUN)/python -m admin.local migrate

docs: install ## write the pages that are made from the code
	$(RUN)/python -m admin.cli docs

bench: install ## measure; one JSON line per case
	$(RUN)/python -m tests.benchmarks

chaos: install ## the fault suite at nightly length; SCENARIO=kills SEED=7 TIMES=3 LENGTH=short
	@$(RUN)/python -m tests.system.chaos $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(SEED),--seed $(SEED)) \
	$(if $(TIMES),--times $(TIMES)) $(if $(LENGTH),--length $(LENGTH))

screenshots: install ## take the pictures in docs/screenshots, from everything running here (some minutes)
	$(RUN)/python -m tests.browser.screenshots

screenshots-outage: install ## take those of the runbook's walk, in a real outage (40 minutes; MINUTES="1 2 3" for less)
	$(RUN)/python -m tests.browser.outage_screenshots

lock: install ## pin what pyproject.toml allows; UPGRADE=--upgrade takes the newest
	@$(RUN)/python -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install -q --disable-pip-version-check uv==0.13.9
	$(LOCK) $(UPGRADE) pyproject.toml -o requirements.txt
	$(LOCK) $(UPGRADE) pyproject.toml -c requirements.txt --extra embedded --extra dev -o requirements-dev.txt
