# Every target works on a fresh Debian machine with Python 3.11+, git and network: nothing has to be set up by hand.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Where it is set, as in many container images, each of the gate's thousands of processes would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Tests wait for servers more than they compute: twice as many workers as processors, and four at least.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 2 ? 2 * n : 4)))
PYTEST := $(BIN)/python -m pytest
SEED ?= 1
CAMPAIGN_ARGS ?=
STORE ?= zookeeper
NIGHT_ARGS ?=
IMAGES ?= sidecar audit
BUILD_OPTIONS ?=

.PHONY: help setup fetch demo test test-long test-fast test-pods coverage check docs bench campaign night lock image version release clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.ready ## make .venv with the locked dependencies, and find or install a Java

$(VENV)/.ready: requirements/dev.lock pyproject.toml scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)
	@touch $@

demo: setup ## a real Flink, a killed leader, the alert, the metric, the audit row: about a minute
	@$(BIN)/python -m tests.demo

fetch: setup ## Flink, a Kubernetes API server, kubectl, Helm, amtool, Prometheus, HAProxy and image layers for the tests, into the cache, once
	@$(BIN)/python -m tests.kit.fetch

test: setup ## every feature once, on the real thing: ZooKeeper, Kubernetes, Flink, Spark (ten minutes; the first time twenty)
	@bash scripts/test.sh gate $(BIN)/python $(WORKERS) $(PYTEST_ARGS)

test-long: setup ## all other tests: kills, random histories, versions of Flink, images, browsers, object stores, campaigns
	@bash scripts/test.sh long $(BIN)/python $(WORKERS) $(PYTEST_ARGS)

test-fast: setup ## while editing: the core, the settings, and all else that needs no server of its own
	@$(PYTEST) -n $(WORKERS) -m fast $(PYTEST_ARGS)

test-pods: setup ## real pods on a real Kubernetes node in a sandbox (root, cgroups v1): docs/project/pods.md
	@bash scripts/pods/sandbox.sh true
	@$(BIN)/python -m tests.kit.pods.fetch
	@bash scripts/pods/sandbox.sh $(BIN)/python -m tests.kit.pods.node scripts/pods/test.sh $(BIN)/python $(PYTEST_ARGS)

coverage: setup fetch ## lines and branches of sidecar/ that the tests reach, in their own process
	@$(PYTEST) -n $(WORKERS) -m "not timing" --cov=sidecar --cov-branch --cov-report=term $(PYTEST_ARGS)

check: setup ## ruff, mypy --strict, import-linter, zizmor (the workflows of .github)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/zizmor --offline --strict-collection --pedantic --quiet .github

docs: setup ## the site of the documents, in build/docs: open build/docs/index.html
	@$(BIN)/python -m sphinx -q -W --keep-going docs build/docs

bench: setup ## the figures of docs/project/benchmarks.md
	@$(BIN)/python -m tests.bench

campaign: setup ## random faults on real stores, judged from outside: make campaign SEED=7 (docs/project/campaign.md)
	@$(BIN)/python -m tests.campaign --seed $(SEED) $(CAMPAIGN_ARGS)

night: setup ## real failures and planned actions, judged from outside, in an hour: make night STORE=kubernetes (docs/project/precision.md)
	@$(BIN)/python -m tests.night --store $(STORE) $(NIGHT_ARGS)

lock: ## resolve the dependencies again (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --extra spool-remote pyproject.toml -o requirements/sidecar.lock
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --extra audit --extra spool-remote -c requirements/sidecar.lock pyproject.toml -o requirements/audit.lock
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --all-extras --group dev -c requirements/audit.lock pyproject.toml -o requirements/dev.lock
	@printf 'hatchling\nsetuptools\n' | uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header -c requirements/dev.lock - -o deploy/build.lock

image: ## build the container images (docker, podman or buildah): see deploy/README.md
	@bash deploy/build-image.sh

version: setup ## set the version wherever it stands: make version VERSION=1.2.0 (docs/project/releasing.md)
	@$(BIN)/python -m scripts.release version '$(VERSION)'

release: setup ## wheel, images, chart, SBOM, notes and checksums of this commit, into dist/: make release VERSION=1.2.0 (docs/project/releasing.md)
	@$(BIN)/python -m scripts.release release '$(VERSION)' --images='$(IMAGES)' --build-options='$(BUILD_OPTIONS)'

clean: ## remove what was made here
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
