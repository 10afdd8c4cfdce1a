# Two commands do everything on a fresh machine:
#   make demo    a real job dies on a real Slurm cluster, and probing-report says why
#   make test    every gate and every test
# Both build on `make setup`, which makes .venv/ with every command in .venv/bin.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests mostly wait for Slurm and servers: more workers than cores, within reason.
JOBS   ?= 4
# The soak's boot clusters and keep them busy: four at once on two cores run into their own time limits.
SOAK_JOBS ?= 2
# One environment, ready for the demo or for the tests as well: the demo does not wait for what only the tests need.
READY       := $(VENV)/.ready
READY_TESTS := $(VENV)/.ready-tests

# Where the machine says that Python shall keep no bytecode, every one of the tests' thousands of Pythons compiles the project anew.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help setup demo test lint unit together alone soak pictures bench campaign clean

help:
	@sed -n '2,4s/^# \{0,1\}//p' Makefile

$(READY): pyproject.toml
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" product
	@touch $@

# All at once: what the tests need holds what the product needs, and pip resolves it once.
$(READY_TESTS): pyproject.toml
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" tests
	@touch $(READY) $@

setup:
	@sh sandbox/install_debian.sh tests
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" python
	@$(MAKE) --no-print-directory $(READY_TESTS)

demo:
	@sh sandbox/install_debian.sh demo
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" python
	@$(MAKE) --no-print-directory $(READY)
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" check
	@$(BIN)/probing-sandbox demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	nice $(BIN)/mypy
	nice $(BIN)/lint-imports --no-cache

# What failed beside others, in up to three files, runs once more alone, and is named (tests/once_more.py).
ONCE_MORE = || $(BIN)/python tests/once_more.py $$? $(BIN)/pytest -m "not soak"

together: setup
	$(BIN)/pytest --numprocesses $(JOBS) --no-loadscope-reorder -m "not alone and not soak" $(ONCE_MORE)

alone: setup
	$(BIN)/pytest tests/e2e -m "alone and not soak" $(ONCE_MORE)

unit:
	@$(MAKE) --no-print-directory together
	@$(MAKE) --no-print-directory alone

# What runs alone mostly waits for its ranks: the linters take what it leaves of the processor, at a lower priority.
test: setup
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory together
	@$(MAKE) --no-print-directory --jobs 2 lint alone

# What the gate leaves out: longer runs of what it proves in short (docs/testing.md).
soak: setup
	PROBING_KILL_ROUNDS=50 PROBING_EXAMPLES=200 $(BIN)/pytest --numprocesses $(SOAK_JOBS) --no-loadscope-reorder \
		--hypothesis-profile soak --override-ini timeout=3600 -m "(soak or longer or hypothesis) and not alone"
	$(BIN)/pytest --override-ini timeout=3600 -m "soak and alone"

# docs/*.png of the README, from what the commands print now.
pictures: setup
	$(BIN)/python -m probing_cluster.sandbox.demo.pictures

bench: setup
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" bench
	$(BIN)/python -m benchmarks

campaign: setup
	$(BIN)/python -m benchmarks.campaign
	$(BIN)/python -m benchmarks.campaign.hangs --repeat 20 --healthy-minutes 60 --write

clean:
	@! $(BIN)/probing-sandbox --help >/dev/null 2>&1 || $(BIN)/probing-sandbox down --all --purge
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
