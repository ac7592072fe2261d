# make demo and make test are all that a newcomer needs; each does its own set-up into .venv.
PYTHON ?= python3
VENV := .venv
SHELL := /bin/bash
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SBOM_EXTRAS ?= server,embedded,voice,store,upstream
# By versions and hashes of constraints.txt.
LOCKED := $(BIN)/python deploy/locked_install.py --editable

BEGAN := $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help demo softphone install test check format lint types coverage fuzz wheel lock sbom bench soak peers clients host tiny-models oracle regression clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo  ## from nothing to a finished phone call, with its recording and latencies
	$(BIN)/python -m qwen3tts_cli.demo
	@echo "make demo took $$(( $$(date +%s) - $(BEGAN) )) s."

softphone: $(VENV)/.ready-demo  ## a telephone in the browser: serves the page and prints its address
	@$(BIN)/python -c "import aiortc, aiohttp, segno" 2>/dev/null || $(LOCKED) --extras webrtc
	$(BIN)/mr-qwen3tts softphone --open $(SOFTPHONE_ARGS)

install: $(VENV)/.ready-dev $(VENV)/.ready-bench oracle clients host peers  ## everything that tests and benchmarks need, in .venv

test: $(VENV)/.ready-dev $(VENV)/.ready-bench oracle clients host peers  ## all tests, in parallel, those with real SIP peers too
	$(BIN)/python -m tests.run $(TEST_ARGS) $(PYTEST_ARGS)

check: format lint types test  ## format, lint, types, tests

format: $(VENV)/.ready-dev  ## format all Python files
	$(BIN)/ruff format .

lint: $(VENV)/.ready-dev  ## ruff, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready-dev  ## mypy, strict, tests included; the integrations where their frameworks are (make clients)
	$(BIN)/mypy
	@if [ -x .clients/bin/python ]; then \
	  $(BIN)/mypy --python-executable .clients/bin/python --allow-untyped-calls --disable-error-code override \
	    integrations/pipecat/pipecat_qwen3tts integrations/livekit/livekit/plugins/qwen3tts; fi

coverage: $(VENV)/.ready-dev $(VENV)/.ready-bench oracle clients host peers  ## tests with branch coverage by package
	$(BIN)/coverage run -m pytest $(PYTEST_ARGS)
	$(BIN)/coverage report

fuzz: $(VENV)/.ready-dev  ## search for bytes that break what parses bytes from outside
	$(LOCKED) --group fuzz
	$(BIN)/python tests/fuzz/run_atheris.py $(FUZZ_ARGS)

wheel: $(VENV)/.ready-dev clients  ## build the wheels and import them in fresh environments
	$(BIN)/python -m tests.wheel_check
	@if [ -x .clients/bin/python ]; then $(BIN)/python -m tests.clients.wheels; fi

lock: $(VENV)/.ready-venv  ## versions and hashes of all requirements into constraints.txt (LOCK_ARGS='--upgrade')
	$(LOCKED) --group lock
	$(BIN)/python deploy/lock.py $(LOCK_ARGS)

sbom: $(VENV)/.ready-venv  ## the software bill of materials (CycloneDX) of an installation, in out/sbom.cdx.json
	$(LOCKED) --group sbom
	$(BIN)/python deploy/sbom.py --extras $(SBOM_EXTRAS) out/sbom.cdx.json

bench: $(VENV)/.ready-dev $(VENV)/.ready-bench  ## every benchmark, quick
	@for script in $(wildcard benchmarks/*.py); do \
	  case $$script in */common.py|*/bad_network.py|*/greetings.py|*/line_sounds.py|*/other_buffers.py|*/traces.py|*/rtp_receiver.py|*/server_engines.py|*/server_peers.py|*/server_process.py|*/stream_far_end.py|*/talker.py|*/turn_calls.py|*/turn_figures.py|*/turn_model.py) ;; \
	  *) echo "== $$script"; $(BIN)/python $$script --quick || exit 1 ;; esac; done

peers:  ## the real peers (baresip, SIPp, Kamailio, Chromium) from Debian, where they may be installed
	@sh tests/peers/install.sh

oracle: $(VENV)/.ready-dev  ## the official package beside ours, for the parity tests, in .oracle
	@$(BIN)/python tests/parity/install.py || { echo "left out: the comparison with the official package. To add it: make oracle"; test -z "$$QWEN3TTS_NOTHING_LEFT_OUT"; }

clients: $(VENV)/.ready-dev  ## the real clients (openai, Pipecat, LiveKit) in .clients
	@$(BIN)/python -m tests.clients.install || { echo "left out: the tests with real clients. To add them: make clients"; test -z "$$QWEN3TTS_NOTHING_LEFT_OUT"; }

host: $(VENV)/.ready-dev  ## the real agent host (MindRoot) in .mindroot
	@$(BIN)/python -m tests.mindroot_host.install || { echo "left out: the tests in the real host. To add them: make host"; test -z "$$QWEN3TTS_NOTHING_LEFT_OUT"; }

soak: $(VENV)/.ready-dev  ## a day of a telephone line in an hour (SOAK_ARGS='--seconds 600'): then nothing may be left over
	$(BIN)/python -m tests.soak.day $(SOAK_ARGS)

regression: $(VENV)/.ready-dev  ## what is streamed beside the offline decode, clicks, order, codes, against the kept baseline
	$(BIN)/python -m tests.regression $(REGRESSION_ARGS)

tiny-models: $(VENV)/.ready-dev  ## small random Qwen3-TTS checkpoints in the real layout, in out/tiny-models
	$(BIN)/python -m tests.tiny_models out/tiny-models

clean:  ## remove the environment and all that was built
	rm -rf $(VENV) .oracle .clients .mindroot build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.ready-venv:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV) || { echo "no environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.ready-demo: $(VENV)/.ready-venv pyproject.toml constraints.txt
	$(LOCKED) --extras server,embedded,voice,phone
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-venv pyproject.toml constraints.txt | peers
	$(LOCKED) --extras all --group dev --group kernels
	@touch $@ $(VENV)/.ready-demo

# What stands beside ours in tests and benchmarks. pesq is built by a C compiler; without one the rest goes on.
$(VENV)/.ready-bench: $(VENV)/.ready-dev | peers
	@$(LOCKED) --group bench && touch $@ || \
	  echo "left out: the comparisons (PESQ, soxr, PyAV). To add them: apt-get install gcc libc6-dev, then make install"
