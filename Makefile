# palaestra. Each target sets up what it needs in .venv, once; see scripts/setup.sh.
#
#   make train ARGS="quick --set seed=2"    arguments for `palaestra train`
#   make test ARGS="tests/core -x"          arguments for pytest
#   make test JOBS=0                        in one process, as a debugger wants it
#   make train PYTHON=python3.12            the Python to use
#   make train PIP_ARGS="…"                 further options for `pip install`
#
# On Linux, pip takes the torch build with CUDA libraries (several GB). Where no GPU is
# to be used, the CPU-only build is a tenth of that: choose "Linux, Pip, CPU" in PyTorch's
# installation guide, and give the index option shown there, as an *extra* index:
#
#   make train PIP_ARGS="--extra-index-url <the address shown>"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help train test test-slow test-laws check check-peers check-environments check-clients bench docs dist clean

export PYTHON PIP_ARGS
# pytest keeps what it compiles: without that, each of its processes compiles all tests anew
unexport PYTHONDONTWRITEBYTECODE
# one more than processors: for a third of their time, tests wait
JOBS = 3

help:
	@echo "make train      set up, then train and evaluate an agent (ARGS: see palaestra train --help)"
	@echo "make test       set up, then run the tests that are not slow"
	@echo "make test-slow  set up, then run the slow tests"
	@echo "make test-laws  set up, then try every law (property test) on 500 examples instead of 15"
	@echo "make check      formatting, lint, Dockerfile, types, import rules, unused code, and make test"
	@echo "make check-peers compare the learning library with verl and TRL, in their own virtual environments"
	@echo "make check-environments test every family of environments, slow tests included, with its package, in its own virtual environment"
	@echo "make check-clients run episodes of third-party clients through the gateway, in their own virtual environments"
	@echo "make docs       set up, then build the documentation as a site, into site/"
	@echo "make dist       build a wheel and an sdist, and try both in clean environments (ARGS: Pythons)"
	@echo "make bench      set up, then measure speed against peers and limits (ARGS: names of benchmarks)"
	@echo "make clean      remove .venv and caches; runs and downloaded models stay"

train:
	@scripts/setup.sh run
	.venv/bin/palaestra train $(ARGS)

test:
	@scripts/setup.sh dev
	.venv/bin/python -m pytest -m "not slow" -n $(JOBS) --dist loadscope $(ARGS)

test-slow:
	@scripts/setup.sh dev
	.venv/bin/python -m pytest -m slow $(ARGS)

test-laws:
	@scripts/setup.sh dev
	.venv/bin/python -m pytest -m "hypothesis and not slow" --hypothesis-profile=laws -n $(JOBS) $(ARGS)

check:
	@scripts/setup.sh dev
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	[ ! -x .venv/bin/hadolint ] || .venv/bin/hadolint Dockerfile
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python scripts/unused.py
	.venv/bin/python -m pytest -m "not slow" -n $(JOBS) --dist loadscope $(ARGS)

check-peers:
	@scripts/check_peers.sh $(ARGS)

check-environments:
	@scripts/check_environments.sh $(ARGS)

check-clients:
	@scripts/check_clients.sh $(ARGS)

bench:
	@scripts/setup.sh dev
	.venv/bin/python benchmarks/collect.py $(ARGS)

docs:
	@scripts/setup.sh dev
	.venv/bin/mkdocs build --quiet --strict
	@echo "site/index.html; with the search: .venv/bin/mkdocs serve"

dist:
	@scripts/setup.sh dev
	@scripts/smoke_dist.sh $(ARGS)

clean:
	rm -rf .venv .peers build dist site src/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache \
		.import_linter_cache
