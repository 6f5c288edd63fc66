# The only list of commands. `make setup` needs Python 3.11 or newer and network access, nothing else.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# CPU=1 takes the CPU build of torch, which PyPI does not have; if its index can be reached.
CPU_INDEX := https://download.pytorch.org/whl/cpu
CPU_BUILD = $(shell $(PYTHON) -c "from urllib.request import urlopen; urlopen('$(CPU_INDEX)/torch/', timeout=10)" 2>/dev/null && echo --extra-index-url $(CPU_INDEX))
TORCH ?= torch==2.13.0 $(if $(CPU),$(CPU_BUILD))
BIN := .venv/bin
INSTALLED := .venv/.installed
SBOM_TOOL := .venv-sbom/bin/cyclonedx-py
# Some images set it: then every worker of the tests rewrites the assertions, and every replica compiles
# our modules, each time it starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup serve test test-quick nightly test-cluster lint format proto proto-check manifests dashboards bench gpu-report gpu-bundle audit audit-deps sbom mutants mutmut test-floor

setup: $(INSTALLED)
	@$(BIN)/specdec models pull smollm2-135m

# torch first, so that nothing later chooses another build of it.
$(INSTALLED): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --constraint requirements.lock $(TORCH)
	@echo "Installing the package and its tools: some minutes"
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[dev,demo]"
	@touch $@

serve: setup
	$(BIN)/specdec serve $(ARGS)

# Files side by side: the fast ones, then those that take a Ray or the demo model, which wait more than
# they compute. tests/conftest.py says what shares a worker, and the order.
# pytest ends with 5 where ARGS leave nothing of a half.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest --durations 15
test: setup
	$(PYTEST) -m "not slow and not nightly" --numprocesses 3 $(SIDE_BY_SIDE) $(ARGS) || [ $$? -eq 5 ]
	$(PYTEST) -m "slow and not nightly" --numprocesses 3 $(SIDE_BY_SIDE) $(ARGS) || [ $$? -eq 5 ]

# While writing code: the engine and the pool, of each test one case. No Ray, no demo model, at most 90 s on
# two cores.
QUICK_TESTS := $(addprefix tests/,core equivalence kernels kv_cache models sampling scheduler speculation)
test-quick: $(INSTALLED)
	$(PYTEST) -m "not slow and not nightly and not thorough" --first-cases --numprocesses 2 $(SIDE_BY_SIDE) $(QUICK_TESTS) $(ARGS)

# What `make test` leaves out: every case of the parameters that it only covers, fuzzing by the thousand, long
# campaigns, repeated redeploys, seeded defects, what is installed. Hours.
nightly: setup $(SBOM_TOOL)
	$(PYTEST) -m "not slow and nightly" --numprocesses 3 $(SIDE_BY_SIDE) $(ARGS)
	$(PYTEST) -m "slow and nightly" --numprocesses 2 $(SIDE_BY_SIDE) $(ARGS)
	$(BIN)/specdec simulate --seeds 2000
	$(MAKE) mutants sbom audit-deps

# The engine's tests with the oldest torch and transformers of pyproject.toml and neither Ray nor the edge:
# 2.6 GB to download, as torch 2.11 comes with CUDA. FLOOR_TORCH="torch==2.13.0+cpu ..." takes another build.
# numpy: newer ones break Triton 3.6's interpreter, which runs our kernel without a GPU.
FLOOR_TORCH ?= torch==2.11.0
ENGINE_TESTS := $(addprefix tests/,core kv_cache models sampling scheduler speculation)
test-floor:
	test -x .venv-floor/bin/python || $(PYTHON) -m venv .venv-floor
	.venv-floor/bin/python -m pip install --quiet $(FLOOR_TORCH) transformers==5.17.0 "numpy<2.4" pytest pytest-timeout hypothesis
	.venv-floor/bin/python -m pytest -m "not slow" $(ENGINE_TESTS) $(ARGS)

lint: $(INSTALLED) proto-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(INSTALLED)
	PYTHON=$(CURDIR)/$(BIN)/python bash proto/generate.sh

proto-check: $(INSTALLED)
	@fresh=$$(mktemp -d) && trap 'rm -rf '$$fresh EXIT && cp -r proto/. $$fresh/ && PYTHON=$(CURDIR)/$(BIN)/python DOCS=$$fresh.md bash $$fresh/generate.sh && diff -r -x __pycache__ proto $$fresh && diff docs/grpc.md $$fresh.md && rm $$fresh.md
	$(BIN)/python -m tests.contract

bench: setup
	@mkdir -p build/bench
	$(BIN)/specdec generate --algorithm autoregressive --input examples/prompts.jsonl --output build/bench/autoregressive.jsonl --stats build/bench/autoregressive.json
	$(BIN)/specdec generate --algorithm exspec --input examples/prompts.jsonl --output build/bench/exspec.jsonl --stats build/bench/exspec.json
	@grep -H tokens_per_second build/bench/*.json

# What one GPU proves, in at most 26 minutes, resumable (docs/gpu.md). Needs torch and transformers, so that it
# runs without `make setup`; ARGS=--rehearse runs all of it on a CPU with tiny shapes.
gpu-report:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,python3) -m benchmarks.gpu_report $(ARGS)

# Packages of the service for a GPU machine without a network, in parts of 40 MiB (docs/gpu.md).
gpu-bundle: $(INSTALLED)
	$(BIN)/python -m benchmarks.gpu_report.bundle pack $(ARGS)

# Every prompt in every cell, resumable: hours. INPUT may be any file that `specdec generate` reads.
INPUT ?= examples/prompts.jsonl
audit: setup
	$(BIN)/python -m benchmarks.audit --input $(INPUT) $(ARGS)

# Known holes in what requirements.lock pins. Fails as well where nothing could be looked up.
audit-deps: $(INSTALLED)
	$(BIN)/python -m tests.supply_chain $(ARGS)

# What is installed, as CycloneDX JSON.
sbom: $(INSTALLED) $(SBOM_TOOL)
	@mkdir -p build
	$(SBOM_TOOL) environment --pyproject pyproject.toml --output-file build/sbom.json $(BIN)/python

# Beside .venv: pyproject.toml's extra "sbom" says why.
$(SBOM_TOOL): requirements.lock
	test -x .venv-sbom/bin/python || $(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python -m pip install --quiet --constraint requirements.lock cyclonedx-bom
	@touch $@

# Seeded defects, each of which must make a named test fail.
mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)

# Every small change of the code that decides ids, against its quick tests: an hour.
# docs/mutation_survivors.md explains what is left.
mutmut: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[mutation]"
	OMP_NUM_THREADS=1 $(BIN)/mutmut run $(ARGS)

manifests: $(INSTALLED)
	$(BIN)/python -m tests.manifests

# Production's topology on the cluster that KUBECONFIG names (KubeRay 1.7, image of docker/cpu.Dockerfile); exit 3: none at hand.
test-cluster: $(INSTALLED)
	$(BIN)/python -m tests.cluster $(ARGS)

# Dashboards, alert rules and docs/metrics.md, from the registry of metrics. RUNBOOK: where alerts send their reader.
RUNBOOK ?= docs/runbook.md
dashboards: $(INSTALLED)
	$(BIN)/python -m k8s.monitoring.generate $(RUNBOOK)
