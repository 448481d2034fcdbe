# Everything here works on a clean clone with only Python >= 3.11 and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FUZZ_SECONDS ?= 60
CORPUS ?=
export PYTHONHASHSEED ?= random
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all lint types contracts coverage models peers llm-peers bench-kernels bench-qnn-support bench-startup bench-plan bench-table bench-solvers bench-memory bench-exact bench-host bench-host-language bench-llm bench-perplexity bench-models bench-simulation bench-studies bench-accuracy bench-phone-language bench-thermal fit fit-thermal anchors fuzz calibrate lock wheel clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hetsched needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## Plan, simulate, run and report a real trained model (into demo/)
	@$(BIN)/python tests/models/fetch.py models pp-ocrv4-det
	@$(BIN)/python docs/demo.py demo

test: $(STAMP) models peers ## Run the test suite
	@$(BIN)/python -m pytest -q -n auto

models: $(STAMP) ## Bring the real models that the tests use (into models/)
	@$(BIN)/python tests/models/fetch.py models >/dev/null || echo "some real models could not be fetched: their tests will be skipped"

peers: $(STAMP) ## Bring the published list schedulers that ours are compared with (into .venv/peers)
	@[ -d $(VENV)/peers/pysmt ] || $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes --target $(VENV)/peers -r tests/task_graphs/peers.txt || echo "anrg-saga could not be fetched: what compares with it is left out"

llm-peers: $(VENV)/llm-peers/.installed ## Build llama.cpp's CPU libraries, which bench-llm and bench-kernels compare with where they are there (into .venv/llm-peers)

# GCC 12 leaves out what the AMX code reads unless it may not drop stores; wheels that pip built before with other flags are not taken.
$(VENV)/llm-peers/.installed: tests/language/peers.txt | $(STAMP)
	@echo "building llama.cpp into $(VENV)/llm-peers (once, a quarter of an hour on two cores)"
	@CMAKE_ARGS="-DCMAKE_CXX_FLAGS=-fno-dse" $(BIN)/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-deps --require-hashes --upgrade --target $(VENV)/llm-peers -r tests/language/peers.txt
	@touch $@

lint: $(STAMP) ## Style and formatting
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP) ## Static types (mypy strict)
	@$(BIN)/mypy
	@$(BIN)/mypy docs/demo.py docs/demo_page.py

contracts: $(STAMP) ## Who may import whom
	@$(BIN)/lint-imports

coverage: $(STAMP) models ## Test coverage (numba-compiled lines do not count as run)
	@$(BIN)/python -m pytest -q --cov --cov-report=term

bench-kernels: $(STAMP) models ## Kernels against numpy and ONNX Runtime, then whole models against it on one thread and two, interleaved
	@a=0; $(BIN)/python -m hetsched_kernels.benchmark || a=1; PYTHONPATH=$(VENV)/llm-peers $(BIN)/python -m hetsched_kernels.benchmark_language || a=1; $(BIN)/python tests/bench_runtime.py || a=1; exit $$a

bench-qnn-support: $(STAMP) ## Which operators of the AI Hub graphs the QNN provider takes, beside the support table (GRAPHS=..., ONLY="--only vit")
	@$(BIN)/python tests/bench_qnn_support.py $(GRAPHS) $(ONLY)

bench-startup: $(STAMP) models ## From the start of a process to the first result of a plan that ran before
	@$(BIN)/python tests/bench_startup.py

bench-plan: $(STAMP) models ## Wall time of planning in a fresh process
	@$(BIN)/python tests/bench_plan.py

bench-table: $(STAMP) models ## Time of cost tables, up to 10,000 operators (GRAPHS=..., default MobileNetV2)
	@$(BIN)/python tests/bench_table.py $(GRAPHS)

bench-host: $(STAMP) models ## Predicted against measured latency of ten models on this machine (JSON=--json)
	@$(BIN)/python tests/bench_host.py $(JSON)

bench-host-language: $(STAMP) models ## Predicted against measured tokens a second of a language model on this machine (JSON=--json)
	@$(BIN)/python tests/bench_host_language.py $(JSON)

bench-llm: $(STAMP) models ## Text generation beside llama.cpp (where llama-cpp-python is installed) and the bandwidth (JSON=--json)
	@PYTHONPATH=$(VENV)/llm-peers $(BIN)/python tests/bench_llm.py $(JSON)

bench-perplexity: $(STAMP) models ## Perplexity of a text for each format of the cache, against the float run and transformers (JSON=--json)
	@$(BIN)/python tests/bench_perplexity.py $(JSON)

bench-exact: $(STAMP) ## Solvers against every plan of 1,000 small graphs (GRAPHS=...)
	@$(BIN)/python tests/bench_exact.py $(GRAPHS)

bench-solvers: $(STAMP) peers ## Task graphs: tasks a second, proofs, and against anrg-saga; proofs on the models (CORPUS="--every 12")
	@a=0; $(BIN)/python tests/bench_solvers.py $(VENV)/peers || a=1; $(BIN)/python tests/bench_corpus.py $(CORPUS) || a=1; exit $$a

bench-simulation: $(STAMP) models ## Simulator: ops a second, an hour of decode, long runs against every inference op by op
	@$(BIN)/python tests/bench_simulation.py

bench-memory: $(STAMP) ## Arenas of plans over the shared models: bound, saving, a greedy arena (MODELS=..., default ../shared/models)
	@$(BIN)/python tests/bench_memory.py $(MODELS)

bench-models: $(STAMP) ## Loading and passes over the shared models (MODELS=..., default ../shared/models)
	@$(BIN)/python tests/bench_models.py $(MODELS)

bench-studies: $(STAMP) ## 1,000 scenarios on two processes and on a Dask cluster of two workers; ten kills (SCENARIOS=...)
	@$(BIN)/python tests/bench_studies.py $(SCENARIOS)

fuzz: $(STAMP) ## Damaged model files for FUZZ_SECONDS (60), of FORMATS (all): no crash, no hang, no harm
	@$(BIN)/python tests/fuzz/fuzz.py $(FUZZ_SECONDS) $(FORMATS)

fit: $(STAMP) ## Fit the cost models to the public measurements in the project, and say how good they are
	@$(BIN)/python -m hetsched_cost_models.fit; a=$$?; $(BIN)/python -m hetsched_cost_models.fit.processors; b=$$?; exit $$((a | b))

fit-thermal: $(STAMP) ## Fit phones to public runs over minutes: their SoC files and the drawing of docs/thermal.md
	@$(BIN)/python -m hetsched_simulations.chassis

bench-thermal: $(STAMP) ## Simulated against measured runs over minutes, each left out of the fit; whether the SoC files are what it gives
	@$(BIN)/python -m hetsched_simulations.chassis --check

anchors: $(STAMP) ## After a fit: how far anchored predictions are off, and the table of public anchors (where the measurements are)
	@$(BIN)/python -m hetsched_cost_models.anchor_table

bench-accuracy: $(STAMP) ## Predictions against public measurements (needs the folder of measurements: MEASUREMENTS=...)
	@$(BIN)/python -m hetsched_cost_models.benchmark $(MEASUREMENTS)

bench-phone-language: $(STAMP) ## Plans of language models on phones beside published rates (one chip alone: CHIP=...)
	@$(BIN)/python tests/bench_phone_language.py $(CHIP)

calibrate: $(STAMP) ## Measure this machine again
	@$(BIN)/hetsched calibrate

lock: $(STAMP) ## Resolve the dependencies again into requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --no-emit-index-url --generate-hashes --no-header -q -o requirements.lock

wheel: $(STAMP) ## Build the wheel and the source distribution (into dist/)
	@$(BIN)/python -m hatchling build

clean: ## Remove what make made, except the models
	rm -rf $(VENV) dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
