# Each target does its own set-up.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# The lock file pins versions as constraints, so pip installs only what an extra requires. Few of the thousands of
# installed modules are ever imported: Python compiles those on first import and caches the result.
INSTALL := $(PIP) install --no-compile --constraint requirements.lock
unexport PYTHONDONTWRITEBYTECODE
# One file at a time per worker, slow files first (`Spread` in tests/conftest.py). Tests wait for servers and browsers often enough
# to keep three workers busy on two cores.
SPREAD := --durations 20 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Seconds after which a test of a third-party suite counts as hung.
THIRD_PARTY_TIMEOUT := -o faulthandler_timeout=1200
# Python packages and the model's weights install while apt installs system packages.
SETUP := +@$(MAKE) --no-print-directory -j3

.PHONY: demo test conformance heavy long timed stacks weights modules ready-test ready-conformance system browser examples screenshots animation reference dist audit check lint types lock clean

demo: $(VENV)/.demo weights
	$(BIN)/kibitz demo

# Most of the tests' time is compilation, and their games are short. Without optimisation and with XLA's older emitter the
# programs give the same results with half the processor time. Compiling each in one thread saves another tenth, as all
# cores are busy anyway. Tests marked `optimised` compile as users do.
QUICK_XLA = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
test heavy timed examples stacks: export XLA_FLAGS += $(QUICK_XLA)
# The files with tests of a mark: collecting all others takes seconds in every process.
MARKED = $$(grep -rlF --include='*.py' "mark.$(1)" tests)
test:
	$(SETUP) ready-test system
	$(BIN)/python -m pytest -m "not conformance" -n 3 $(SPREAD)

conformance:
	$(SETUP) ready-conformance system
	+@$(MAKE) --no-print-directory -j2 heavy long
	@$(MAKE) --no-print-directory timed
	$(BIN)/python -m pytest $(call MARKED,timed) -m "conformance and timed and optimised" $(THIRD_PARTY_TIMEOUT)

heavy:
	$(BIN)/python -m pytest -m "conformance and not timed and not optimised" -n 3 $(SPREAD) $(THIRD_PARTY_TIMEOUT)

# In one process, beside those of `heavy`.
long:
	$(BIN)/python -m pytest $(call MARKED,optimised) -m "conformance and optimised and not timed" --durations 10 $(THIRD_PARTY_TIMEOUT)
	@$(MAKE) --no-print-directory examples

# Alone, because they measure time or depend on it.
timed:
	$(BIN)/python -m pytest $(call MARKED,timed) -m "conformance and timed and not optimised" --durations 20 $(THIRD_PARTY_TIMEOUT)

# Every example is a game in a package of its own: installed beside kibitz, as a user would, and tested from outside.
examples: $(VENV)/.test
	rm -rf build/examples
	$(PIP) install --no-deps --target build/examples $(dir $(wildcard examples/*/pyproject.toml))
	PYTHONPATH=$(CURDIR)/build/examples $(BIN)/python -m pytest -p no:cacheprovider examples

# Examples for packages that need other versions than the lock has: each in an environment of its own.
stacks:
	@for stack in inspect verifiers; do \
	  { test -e build/$$stack/.ready || { $(PYTHON) -m venv build/$$stack && \
	    build/$$stack/bin/python -m pip --disable-pip-version-check -q install --no-compile -e ".[$$stack]" pytest pytest-xdist && \
	    touch build/$$stack/.ready; }; } && \
	  build/$$stack/bin/python -m pytest -p no:cacheprovider tests/conformance/test_$${stack}_example.py || exit 1; done

check: lint types test

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

$(VENV)/bin/python:
	@echo "kibitz: creating $(VENV) (about a minute, once)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e ".[live,logs,embedded,studies]"
	@touch $@

$(VENV)/.test: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e ".[test]"
	@touch $@

$(VENV)/.conformance: $(VENV)/.test
	@echo "kibitz: installing third-party test suites (a few minutes, once)"
	$(INSTALL) torch==2.13.0 -e ".[conformance]"
	@touch $@

ready-test: $(VENV)/.test
	@$(MAKE) --no-print-directory weights modules

ready-conformance: $(VENV)/.conformance
	@$(MAKE) --no-print-directory weights

# pytest rewrites the assertions of every test module and caches the result: once here, while others download, instead
# of in every worker. The run itself reports what cannot be collected.
modules: $(VENV)/.test
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true

# The embedded language model, in the user's cache folder. Only hints and players that use it need it.
weights: | $(VENV)/bin/python
	@test -e $(BIN)/kibitz || $(INSTALL) -e .
	@test -e $(VENV)/.weights || { $(BIN)/kibitz llm install && touch $(VENV)/.weights; } || \
		echo "kibitz: continuing without the embedded model; tests that need it will skip or fail with the reason"

# Redis, PostgreSQL, nginx, a voice and a browser for the tests, where this user may install them. Tests that miss one of
# them skip with the reason, or fail with it where CI=true. The browser is Chromium without windows, which opens a page
# with a quarter of the processor time; without it the tests take the whole Chromium.
PRESENT = { command -v redis-server && command -v nginx && command -v espeak-ng && command -v chromium-headless-shell && ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1
PACKAGES = redis-server postgresql nginx-light espeak-ng chromium-headless-shell fonts-inter
MAY_INSTALL = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
APT_INSTALL = DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
system:
	@$(PRESENT) || { $(MAY_INSTALL) && echo "kibitz: installing Redis, PostgreSQL, nginx, eSpeak NG and Chromium for the tests" && \
	  apt-get update -qq && { $(APT_INSTALL) $(PACKAGES) >/dev/null || for package in $(PACKAGES); do \
	    $(APT_INSTALL) $$package >/dev/null || echo "kibitz: could not install $$package"; done; }; } || \
	  echo "kibitz: Redis, PostgreSQL, nginx, eSpeak NG or Chromium is missing and cannot be installed here"

browser:
	@command -v chromium >/dev/null || { $(MAY_INSTALL) && apt-get update -qq && $(APT_INSTALL) chromium fonts-inter; } || \
	  echo "kibitz: Chromium is missing and cannot be installed here"

# The pictures in README and docs, taken from a server and a browser started for the purpose.
screenshots: $(VENV)/.test weights browser
	$(BIN)/python tools/screenshots.py docs/pictures

# The animation in the README alone.
animation: $(VENV)/.test browser
	$(BIN)/python tools/screenshots.py docs/pictures --animation

# docs/reference, generated from the code.
reference: $(VENV)/.test
	$(BIN)/python tools/reference.py

# What a release consists of: source distribution, wheel with the documentation, bill of materials.
dist: $(VENV)/.conformance
	rm -rf dist
	$(BIN)/python tools/backend.py dist
	$(BIN)/python tools/bill_of_materials.py dist/kibitz-$$($(BIN)/python -c "import kibitz; print(kibitz.__version__)").cdx.json

# Known vulnerabilities in the locked dependencies. AUDIT=--required fails where the audit cannot run.
AUDIT ?=
audit:
	@test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install -q pip-audit; } || true
	$(PYTHON) tools/audit.py $(AUDIT) build/audit/bin/pip-audit

# Exact versions of everything the extras require, without index addresses.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -q torch==2.13.0
	build/lock/bin/python -m pip install -q ".[conformance]"
	build/lock/bin/python -m pip freeze --exclude kibitz | sed -e 's/+cpu$$//' -e '/ @ /d' > requirements.lock
	rm -rf build/lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
