# Run `make` for the list of targets.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# The engine tests share one worker; the second runs everything else meanwhile.
WORKERS ?= 2
CODE := radiance_patch hunks kernels tests/real

.PHONY: help venv demo test lint matrix support bench gpu

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/installed ## Make .venv with the tool and what its tests need

demo: venv ## Patch a real vLLM, serve a few prompts stock and patched, and take the patch out again
	@$(RUN) -m tests.real.demo

test: lint ## Run every test, on published vLLM trees and on a running vLLM
	@echo "fetching what the tests run on (kept in ~/.cache/radiance-patch)"
	@$(RUN) -m tests.real.releases
	@$(RUN) -m tests.real.engine
	$(RUN) -m pytest -n $(WORKERS) --dist loadgroup

lint: venv ## Check style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy $(CODE)

matrix: venv ## Apply, status, apply, revert on every supported release of both distributions; writes the README's table
	@$(RUN) -m tests.matrix
	@$(RUN) -m tests.readme

support: venv ## With V=0.34.0: fill the fingerprints of a new release, show what to review (ACCEPT="HUNK ..." once read)
	@$(RUN) -m tests.support $(V) $(if $(ACCEPT),--accept $(ACCEPT))

bench: venv ## Time the tool on a real vLLM tree, and the hooks beside its scheduler; print ratios
	@$(RUN) -m tests.bench

gpu: ## With PYTHON=... that has torch on a GPU: kernels, times, compute-sanitizer; with MODEL=... engines on its patched vLLM
	RADIANCE_PATCH_TEST_DEVICE=cuda $(PYTHON) -m pytest -p no:cacheprovider -W ignore tests/kernels/inside
	$(PYTHON) -m tests.bench.gpu_kernels
	$(PYTHON) -m tests.bench.gpu_sanitizer || test $$? -eq 2  # 2: there is no compute-sanitizer, which it says
ifdef MODEL
	$(PYTHON) -m tests.bench.gpu_copies --model $(MODEL)
	$(PYTHON) -m tests.bench.gpu_robust --model $(MODEL)
	$(PYTHON) -m tests.bench.gpu_table --model $(MODEL)
else
	@echo "with MODEL=DIR (tests/bench/widen.py makes one) also: copies to the host, hard cases, the table of engines"
endif

$(VENV)/installed: pyproject.toml
	@echo "installing into $(VENV) (less than a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install -qq -e '.[dev]'
	@touch $@
