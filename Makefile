# Two commands do everything on a fresh machine:
#   make demo    a real job dies on a real Slurm cluster, and probing-report says why
#   make test    every gate and every test
# Both build on `make setup`, which makes .venv/ with every command in .venv/bin.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# TORCH=1 adds the test extra torch==2.13.0; without it the probe's torch tests skip and say so.
TORCH  ?= 0
# Tests mostly wait for Slurm and servers: more workers than cores, within reason.
JOBS   ?= 3
READY  := $(VENV)/.ready-$(TORCH)

.DELETE_ON_ERROR:
.PHONY: help setup system demo test lint unit bench campaign clean

help:
	@sed -n '2,4s/^# \{0,1\}//p' Makefile

system:
	@sh sandbox/install_debian.sh

$(READY): pyproject.toml
	@sh sandbox/make_venv.sh "$(PYTHON)" "$(VENV)" "$(TORCH)"
	@touch $@

setup: system $(READY)

demo: setup
	@$(BIN)/probing-sandbox demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: setup
	$(BIN)/pytest --numprocesses $(JOBS) --no-loadscope-reorder -m "not alone"
	$(BIN)/pytest -m alone

test: lint unit

bench: setup
	$(BIN)/python -m benchmarks

campaign: setup
	$(BIN)/python -m benchmarks.campaign
	$(BIN)/python -m benchmarks.campaign.hangs --repeat 20 --healthy-minutes 60 --write

clean:
	-$(BIN)/probing-sandbox down --purge
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
