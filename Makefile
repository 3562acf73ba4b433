# Each target does all of its own set-up; nothing has to be done by hand.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# a lock file of exact versions, as constraints: what an extra does not ask for is not installed.
# Of thousands of modules few are ever imported: those are compiled then, and kept for the hundreds of processes to come
INSTALL := $(PIP) install --no-compile --constraint requirements.lock
unexport PYTHONDONTWRITEBYTECODE
# a file at a time to each core, long ones first (tests/conftest.py), so that both end together
SPREAD := --durations 20 -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# seconds after which one of other people's suites hangs
PATIENT := -o faulthandler_timeout=1200

.PHONY: demo test conformance weights machines browser screenshots check lint types lock clean

demo: $(VENV)/.demo weights
	$(BIN)/kibitz demo

test: $(VENV)/.test weights machines browser
	$(BIN)/python -m pytest -m "not conformance" $(SPREAD)

conformance: $(VENV)/.conformance weights machines browser
	$(BIN)/python -m pytest -m "conformance and not timed" $(SPREAD) $(PATIENT)
	$(BIN)/python -m pytest -m "conformance and timed" $(PATIENT)

# real Redis, PostgreSQL and a voice for the tests of the live server, where we may install them
machines:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  ! { command -v redis-server && command -v espeak-ng && ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1; then \
	  echo "kibitz: installing redis-server, postgresql and espeak-ng for the tests"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server postgresql espeak-ng; } \
	    >/dev/null || echo "kibitz: could not install them; their tests will say so"; fi

check: lint types test

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

$(VENV)/bin/python:
	@echo "kibitz: setting up $(VENV) (about a minute, once)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/bin/kibitz: | $(VENV)/bin/python
	$(INSTALL) -e .

$(VENV)/.demo: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e ".[live,logs,embedded]"
	@touch $@

$(VENV)/.test: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e ".[test]"
	@touch $@

$(VENV)/.conformance: $(VENV)/.test
	@echo "kibitz: installing other people's suites (some minutes, once)"
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e ".[conformance]"
	@touch $@

# the embedded language model, in the user's cache; without it hints and players of a model are missing, nothing else
weights: | $(VENV)/bin/kibitz
	@test -e $(VENV)/.weights || { $(BIN)/kibitz llm install && touch $(VENV)/.weights; } || \
		echo "kibitz: going on without the embedded model; what needs it says so"

# Debian's browser, where this user may install it; without it browser tests skip, and fail where CI=true
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-inter; } || \
		echo "kibitz: no chromium here; browser tests will say so"

# the pictures of README and docs, from a server and a browser of their own
screenshots: $(VENV)/.test browser
	$(BIN)/python tools/screenshots.py docs/pictures

# exact versions of everything that the extras pull in; no addresses
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -q torch==2.13.0
	build/lock/bin/python -m pip install -q ".[conformance]"
	build/lock/bin/python -m pip freeze --exclude kibitz | sed -e 's/+cpu$$//' -e '/ @ /d' > requirements.lock
	rm -rf build/lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
