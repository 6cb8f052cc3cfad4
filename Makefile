# Every target sets up what it needs and may be run again at any time.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := target/release/truegauge
ARGS ?=

say = @printf '\033[1m== %s\033[0m\n' $(1)

.PHONY: help need need-test web binary wheel build demo test test-rust test-off-linux test-python test-web bench crash lint fmt clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need:
	@scripts/need demo

need-test:
	@scripts/need test

# --- the pieces -----------------------------------------------------------------------------------

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	$(call say,"web: packages")
	cd web && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

WEB_SOURCES := $(shell find web/src web/public web/index.html web/vite.config.ts web/tsconfig.json -type f 2>/dev/null)
web/dist/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	$(call say,"web: build")
	cd web && npm run --silent build
	@touch $@

web: need web/dist/index.html ## build the web UI into web/dist

binary: web
	$(call say,"rust: release build (6 minutes when nothing is cached)")
	cargo build --release --locked --workspace

$(VENV)/.ready: python/requirements.txt
	$(call say,"python: packages")
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r python/requirements.txt
	@touch $@

wheel: binary $(VENV)/.ready
	$(call say,"python: wheel")
	install -D -m 755 $(BIN) python/truegauge.data/scripts/truegauge
	@rm -rf dist
	cd python && ../$(VENV)/bin/maturin build --quiet --release --locked --out ../dist --interpreter ../$(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl

build: wheel ## leave target/release/truegauge, dist/*.whl and a .venv with the package
	@echo "built: $(BIN), $$(ls dist/*.whl), $(VENV)"

# --- what people run ------------------------------------------------------------------------------

demo: build ## build all, train a model and show it live (ARGS=--once ends by itself)
	@$(VENV)/bin/python scripts/demo.py --binary $(BIN) $(ARGS)

test: need-test build test-rust test-off-linux test-python test-web ## set up everything and pass every test
	@echo "all tests passed"

test-rust:
	$(call say,"rust: tests")
	@if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --locked --workspace; else cargo test --locked --workspace; fi

test-off-linux:
	$(call say,"rust: the half that runs off Linux")
	TG_PRETEND_OFF_LINUX=1 cargo test --locked --quiet -p collect -p client --lib

test-python:
	$(call say,"python: tests")
	$(VENV)/bin/python -m pytest python/tests $(if $(CI),|| $(VENV)/bin/python -m pytest --last-failed python/tests)

test-web: web/node_modules/.package-lock.json
	$(call say,"web: tests")
	cd web && npm run --silent test && npm run --silent e2e

bench: build ## measure against the peers, as ratios in one run
	@benches/run $(ARGS)

crash: ## kill -9 a server under load ROUNDS=200 times, and compare what is there with what was acknowledged
	CRASH_ROUNDS=$(or $(ROUNDS),200) cargo test --locked -p cli --test it crash::kill -- --nocapture

lint: need web $(VENV)/.ready ## formatters, linters and type checkers, no changes
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(VENV)/bin/ruff check python examples scripts benches
	$(VENV)/bin/ruff format --check python examples scripts benches
	cd python && ../$(VENV)/bin/mypy truegauge
	cd web && npm run --silent lint

fmt: $(VENV)/.ready web/node_modules/.package-lock.json ## format everything
	cargo fmt --all
	$(VENV)/bin/ruff check --fix --quiet python examples scripts benches || true
	$(VENV)/bin/ruff format --quiet python examples scripts benches
	cd web && npm run --silent fmt

clean: ## remove what was built
	rm -rf target dist out $(VENV) web/dist web/node_modules python/truegauge.data
