# Needs Python 3.10 or later, a C compiler and make. `make help` lists what there is.
#
# Everything is installed into .venv; PYTHON chooses the interpreter behind it:  make PYTHON=python3.12 test

PYTHON ?= python3
VENV   ?= .venv
# xdist's loadgroup keeps tests that share a kernel resource (mark xdist_group) on one worker.
PYTEST_ARGS ?= -n 2 --dist loadgroup

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
SO  := src/ftforensics/_native.abi3.so
C_SOURCES := $(wildcard csrc/*.c csrc/*.h csrc/preload/*.c)
C_TESTS   := $(wildcard tests/csrc/*.c tests/ground/*.c $(foreach tests,crash real,tests/$(tests)/programs/*.c tests/$(tests)/programs/*.cc))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv build demo demo-kill demo-torch test lint types contracts cudnn-pair matrix stress bench bench-death ring-age campaign fuzz docs readme wheel format clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make: $(PYTHON) is older than Python 3.10; try  make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "make: no venv module; on Debian and Ubuntu:  apt-get install python3-venv python3-dev" >&2; exit 1; }

# --group needs pip 25.1. setuptools stands in the environment itself, so that a rebuild after an edit in csrc/ is one
# compiler run and not an isolated build.
$(VENV)/.product: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what ftforensics needs into $(VENV)"
	@$(PIP) install --upgrade 'pip>=25.1' 'setuptools>=77' wheel
	@$(PIP) install --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.product
	@echo "Installing the development tools into $(VENV) (with torch on Python 3.11: some minutes the first time)"
	@$(PIP) install --group dev
	@touch $@

$(SO): $(C_SOURCES) setup.py | $(VENV)/.product
	@$(PY) setup.py -q build_ext --inplace
	@touch $@

venv: $(VENV)/.dev  ## .venv with the product and the development tools

build: $(VENV)/.product $(SO)  ## The C extension, in place

demo: build  ## A training-like script dies for real; its report (no torch needed)
	@$(PY) examples/demo.py examples/train.py

demo-kill: build  ## A save that takes too much memory, killed by the kernel (as root; else by kill -9); its report
	@$(PY) examples/demo_kill.py examples/train_save.py

demo-torch: build  ## The same with a real torch training loop that dies inside libtorch
	@$(PY) -c 'import torch, numpy' 2>/dev/null || { \
	  echo "Installing torch into $(VENV)"; $(PIP) install --group torch; }
	@$(PY) examples/demo.py examples/train_torch.py

test: venv build  ## Every test that CI runs
	$(PY) -m pytest -m 'not campaign' $(PYTEST_ARGS)

lint: venv  ## ruff, clang-format, the news fragments
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(C_SOURCES) $(C_TESTS)
	$(VENV)/bin/towncrier build --draft --version 0 >/dev/null

types: venv  ## mypy --strict on src
	$(VENV)/bin/mypy

contracts: venv  ## The layers and the other promises about the code's shape
	$(VENV)/bin/lint-imports --no-cache
	$(PY) -m pytest tests/contracts

cudnn-pair: venv build  ## A crash with two real cuDNN loaded (downloads 1.4 GB)
	FTFORENSICS_CUDNN_PAIR=1 $(PY) -m pytest tests/real/test_cuda_stack.py -k real_cudnns

matrix: venv build  ## The crash matrix on each installed Python, as a printed table
	PYTHONPATH=src:tests:tests/crash $(PY) tests/crash/matrix.py --markdown docs/matrix.md

stress: venv build  ## 1,000 crashes in a row: none lost, none hung (resumable)
	PYTHONPATH=src:tests:tests/crash $(PY) benchmarks/stress.py

bench: venv build  ## The figures the project promises, each beside its peer
	$(PY) benchmarks/install.py
	$(PY) benchmarks/symbols.py
	$(PY) benchmarks/recorder.py
	$(PY) benchmarks/kernel_log.py
	$(PY) benchmarks/run_overhead.py
	$(PY) benchmarks/check.py
	$(PY) benchmarks/launcher_log.py
	$(PY) benchmarks/many_ranks.py
	$(MAKE) bench-death

bench-death: venv build  ## How much longer a death takes, beside faulthandler
	PYTHONPATH=src:tests:tests/crash $(PY) benchmarks/death.py

ring-age: venv build  ## How old is the last sample after 100 kill -9 and 100 OOM kills (as root)
	PYTHONPATH=src:tests $(PY) benchmarks/ring_age.py

campaign: venv build  ## 210 real torchrun jobs: who failed first? (as root, an hour; resumable, evidence in build/campaign)
	PYTHONPATH=src $(PY) benchmarks/first_failure/campaign.py --work build/campaign

fuzz: venv build  ## Five minutes of any bytes as a kernel log
	@$(PIP) install --group fuzz
	PYTHONPATH=src:tests $(PY) tests/fuzz/kernel_log_fuzz.py -max_total_time=300 -max_len=8192

docs: venv build  ## Generated pages: causes and the JSON Schemas
	$(PY) -m ftforensics.causes
	$(PY) -m ftforensics.wire.schema

readme: venv build  ## What README.md shows of the program, from a real run
	$(PY) docs/refresh_readme.py

wheel: venv  ## One abi3 manylinux wheel in dist/, checked
	$(PY) tests/packaging/build_wheel.py dist

format: venv  ## Rewrite the sources in the project's format
	$(VENV)/bin/ruff check --fix-only -q . ; $(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(C_SOURCES) $(C_TESTS)

clean:  ## Remove what was built (keeps .venv)
	rm -rf build dist src/*.egg-info src/ftforensics/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
