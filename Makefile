# The two commands a newcomer needs are `make demo` and `make test`; both set up everything they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SUITE := tests/conformance/node_modules/.package-lock.json
CLIENTS := tests/clients
CLIENTS_JS := $(CLIENTS)/node_modules/.package-lock.json
CLIENTS_PYTHON := $(CLIENTS)/.venv/.ready
NODE_JS := docs/examples/node-js
NODE_JS_READY := $(NODE_JS)/node_modules/.package-lock.json
LINTERS := $(VENV)/linters/.ready
ON_RAY := $(VENV)/on-ray/.ready
AXE := tests/browser/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help env demo test conformance check format bench soak chaos simulate hostile ray screenshots package deployment wheels lock clean

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

env: $(STAMP)  ## make the environment in .venv from the locked versions

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 env")'
	@echo "setting up $(VENV) (first time: a minute or so) ..."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: env $(if $(shell command -v npm),$(NODE_JS)/.tried)  ## see it work
	$(BIN)/heliograph demo --http 127.0.0.1:8420 --devices 127.0.0.1:8421

test: check $(if $(shell command -v npm),$(AXE))  ## format, lint, types, then every test, in WORKERS=2 processes
	$(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist loadfile

$(AXE): tests/browser/package.json tests/browser/package-lock.json
	@echo "installing axe-core, which looks over the console's pages ..."
	@cd tests/browser && npm ci --no-progress --loglevel=error && touch node_modules/.package-lock.json \
		|| echo "axe-core is not installed: accessibility will not be tested"

conformance: env $(SUITE) $(CLIENTS_JS) $(CLIENTS_PYTHON) $(NODE_JS_READY)  ## the official MCP suite, both eras, real clients, and the node in JavaScript (needs npm and Chromium)
	$(BIN)/python -m tests.conformance.run
	$(BIN)/python -m tests.clients.run
	$(BIN)/python -m tests.node_js.run

$(SUITE): tests/conformance/package.json tests/conformance/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed for the conformance suite (on Debian: apt install npm)"; exit 1; }
	@echo "installing the conformance suite and its Node (first time: half a minute or so) ..."
	cd tests/conformance && npm ci --no-progress --loglevel=error
	@touch $(SUITE)

$(CLIENTS_JS): $(CLIENTS)/package.json $(CLIENTS)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed for the clients (on Debian: apt install npm)"; exit 1; }
	@echo "installing the TypeScript SDKs of the clients ..."
	cd $(CLIENTS) && npm ci --no-progress --loglevel=error
	@touch $(CLIENTS_JS)

$(NODE_JS_READY): $(NODE_JS)/package.json $(NODE_JS)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed for the node in JavaScript (on Debian: apt install npm)"; exit 1; }
	@echo "installing the packages of the node in JavaScript ..."
	cd $(NODE_JS) && npm ci --no-progress --loglevel=error
	@touch $(NODE_JS_READY)

# A demo without this node is a demo too.
$(NODE_JS)/.tried: $(NODE_JS)/package.json $(NODE_JS)/package-lock.json
	@$(MAKE) --no-print-directory $(NODE_JS_READY) || echo "the packages of the node in JavaScript are not installed: the demo is without it"
	@touch $@

$(CLIENTS_PYTHON): $(CLIENTS)/requirements.lock
	@echo "installing the Python SDK of the clients ..."
	$(PYTHON) -m venv --clear $(CLIENTS)/.venv
	$(CLIENTS)/.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(CLIENTS)/requirements.lock
	@touch $(CLIENTS_PYTHON)

check: env  ## the fast inner loop: format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: env  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: env  ## run the benchmarks (minutes; close other programs)
	$(BIN)/python -m bench.decode
	$(BIN)/python -m bench.hostile_frames
	$(BIN)/python -m bench.log
	$(BIN)/python -m bench.ingest
	$(BIN)/python -m bench.door
	$(BIN)/python -m bench.door --tls
	$(BIN)/python -m bench.fanout
	$(BIN)/python -m bench.fanout --tls
	$(BIN)/python -m bench.openings
	$(BIN)/python -m bench.pii
	$(BIN)/python -m bench.false_positives
	$(BIN)/python -m bench.governance
	$(BIN)/python -m bench.mcp
	$(BIN)/python -m bench.calls
	$(BIN)/python -m bench.reconnect
	$(BIN)/python -m bench.rooms
	$(BIN)/python -m bench.console
	$(BIN)/python -m bench.sites
	$(BIN)/python -m bench.engine

soak: env  ## a gateway under everything at once, HOURS=1 by default: what grew is named (as root: with a full disk)
	$(BIN)/python -m bench.soak --hours $(or $(HOURS),1) --seed $(or $(SEED),1)

simulate: env  ## simulate fleets under faults, with one gateway and with several on an engine, HOURS=1 of each by default
	$(BIN)/python -m tests.simulation.run --hours $(or $(HOURS),1)
	$(BIN)/python -m tests.simulation.engine_run --hours $(or $(HOURS),1)

hostile: env  ## ask every operation of the HTTP API, EXAMPLES=500 times each by default
	OPENAPI_EXAMPLES=$(or $(EXAMPLES),500) $(BIN)/python -m pytest -q tests/gateway/openapi/test_requests.py

ray: $(ON_RAY)  ## gateways on a Ray cluster of two machines, made up here (installs Ray, 240 MB)
	$(ON_RAY:/.ready=)/bin/python -m pytest -p no:cacheprovider tests/on_ray

$(ON_RAY): requirements.lock pyproject.toml
	@echo "installing Ray beside the locked versions, in an environment of its own ..."
	$(PYTHON) -m venv --clear $(ON_RAY:/.ready=)
	$(ON_RAY:/.ready=)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(ON_RAY:/.ready=)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[ray]'
	@touch $(ON_RAY)

screenshots: env  ## take the pictures of the pages in docs/images (needs Chromium)
	$(BIN)/python -m tests.browser.screenshots

chaos: env  ## kill and stop gateways and NATS servers under load, ROUNDS=1 from SEED=0 (two to three minutes each)
	$(BIN)/python -m tests.chaos.run --rounds $(or $(ROUNDS),1) --seed $(or $(SEED),0)

package: env  ## build the wheel and the sdist into dist
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist

deployment: env $(LINTERS)  ## have linters look at the container, the units and the manifest
	$(VENV)/linters/bin/hadolint Containerfile
	$(VENV)/linters/bin/kubernetes-validate --strict deploy/kubernetes/heliograph.yaml
	@if command -v systemd-analyze >/dev/null; then systemd-analyze security --offline=yes --no-pager --threshold=20 deploy/systemd/*.service; \
		else echo "systemd is not installed: the units are not looked at"; fi

$(LINTERS): tests/packaging/linters.lock
	$(PYTHON) -m venv --clear $(VENV)/linters
	$(VENV)/linters/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/packaging/linters.lock
	@touch $(LINTERS)

wheels: env  ## for which Pythons and processors all locked dependencies have wheels (minutes; asks the index)
	$(BIN)/python -m tests.packaging.wheels

lock: env  ## resolve the newest versions into the lock files
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet uv
	$(VENV)/lock/bin/uv pip compile pyproject.toml --extra dev --python-version 3.11 --universal --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o requirements.lock
	$(VENV)/lock/bin/uv pip compile pyproject.toml --extra gateway --extra engine --constraints requirements.lock --python-version 3.11 --universal --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o requirements-gateway.lock
	$(VENV)/lock/bin/uv pip compile $(CLIENTS)/requirements.in --python-version 3.11 --universal --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o $(CLIENTS)/requirements.lock
	$(VENV)/lock/bin/uv pip compile tests/packaging/linters.in --python-version 3.11 --universal --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o tests/packaging/linters.lock

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info tests/conformance/node_modules \
		$(CLIENTS)/node_modules $(CLIENTS)/.venv $(NODE_JS)/node_modules $(NODE_JS)/.tried tests/browser/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
