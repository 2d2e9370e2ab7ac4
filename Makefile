# Two commands are enough: `make demo` and `make test`. Both make their own .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Many tests wait for processes of their own more than they compute: four at a time also where there are fewer cores.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); [ $$n -gt 4 ] && echo $$n || echo 4)
# Tests and demo start some hundred processes: each module is compiled once, also where the environment forbids to keep that.
export PYTHONDONTWRITEBYTECODE :=
ADAPTERS := .venv-adapters
ADAPTER_PINS := tests/agent/adapters/constraints.txt
OPENHANDS := .venv-openhands
OPENHANDS_PINS := tests/agent/adapters/constraints-openhands.txt
PYTHON312 ?= python3.12

.PHONY: help setup demo test long-test browser-test screenshots lint format kafka-test observability-test deploy-test chaos adapters-test openhands-test clean soak

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP)  ## Create .venv with everything that development and the demo need

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Leadline needs Python 3.11 or later; name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "Python's venv module is missing; install it, on Debian and Ubuntu with: apt-get install python3-venv"; exit 1; }
	@echo "first use: installing into $(VENV) what development, tests and demo need, some 650 MB; a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## Watch a fleet of agents being monitored, halted, repaired and released, through Kafka
	$(BIN)/leadline demo $(ARGS)

test: $(STAMP)  ## Run the tests on the embedded broker (ARGS='-k inversion' narrows)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

long-test: $(STAMP)  ## Run what takes too long for `make test`: every fault point, every benchmark once, more seeds
	LEADLINE_TEST_LONG=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long $(ARGS)

kafka-test: $(STAMP)  ## Run the tests that need a broker a second time, on Apache Kafka (needs Java 17, and Maven or KAFKA_HOME)
	$(BIN)/python -m tests.support.brokers
	LEADLINE_TEST_BROKERS=kafka LEADLINE_TEST_LONG=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'broker or kafka' $(ARGS)

chaos: $(STAMP)  ## Kill and disturb workers and brokers under load on Apache Kafka, and compare with the oracle (ARGS=--short)
	$(BIN)/python -m tests.chaos $(ARGS)

$(ADAPTERS)/.installed: pyproject.toml $(ADAPTER_PINS)
	$(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $(ADAPTER_PINS) --editable .
	$(ADAPTERS)/bin/python -m pip check
	@touch $@

adapters-test: $(ADAPTERS)/.installed  ## Run the adapters' tests against the real frameworks, in a venv of their own
	LEADLINE_TEST_ADAPTERS=all LEADLINE_TEST_LONG=1 $(ADAPTERS)/bin/python -m pytest -n $(JOBS) --dist loadgroup tests/agent/adapters $(ARGS)

$(OPENHANDS)/.installed: pyproject.toml $(OPENHANDS_PINS)
	$(PYTHON312) -m venv $(OPENHANDS)
	$(OPENHANDS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $(OPENHANDS_PINS) --editable .
	$(OPENHANDS)/bin/python -m pip check
	@touch $@

openhands-test: $(OPENHANDS)/.installed  ## Run the OpenHands adapter's tests, in a venv of their own (needs Python 3.12: PYTHON312=...)
	LEADLINE_TEST_ADAPTERS=openhands $(OPENHANDS)/bin/python -m pytest -n $(JOBS) --dist loadgroup tests/agent/adapters -k openhands $(ARGS)

deploy-test: $(STAMP)  ## Check the chart, the image's recipe and the compose file with helm, hadolint and the schemas, which it fetches
	@$(BIN)/python -m tests.helm.tools
	LEADLINE_TEST_IMAGE=1 $(BIN)/python -m pytest -n 2 -rs tests/helm tests/deploy $(ARGS)

browser-test: $(STAMP)  ## Look at the dashboard in a real browser (installs chromium where it can)
	@$(BIN)/python -m tests.support.browser || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fonts-inter; $(BIN)/python -m tests.support.browser; }
	LEADLINE_TEST_BROWSER=1 $(BIN)/python -m pytest tests/dashboard/test_browser.py $(ARGS)

screenshots: $(STAMP)  ## Make the README's pictures anew, by the same test
	mkdir -p docs/images
	LEADLINE_TEST_BROWSER=1 LEADLINE_TEST_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/dashboard/test_browser.py -k three_clicks $(ARGS)

soak: $(STAMP)  ## 200 sessions while Apache Kafka is stopped and started (ARGS='--seconds 600'; needs what kafka-test needs)
	$(BIN)/python -m benchmarks.soak --seconds 60 $(ARGS)

observability-test: $(STAMP)  ## Check rules, alerts, dashboards and traces with Prometheus' own tools (fetched where they can be had)
	@$(BIN)/python -m tests.observability.tools
	$(BIN)/python -m pytest -n 2 -rs tests/observability tests/telemetry $(ARGS)

lint: $(STAMP)  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that can be made again
	find streams tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $(VENV) $(ADAPTERS) $(OPENHANDS) .cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
