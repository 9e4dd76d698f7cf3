# Each target sets itself up from a bare python3; see scripts/setup.sh.
.PHONY: demo test test-file-systems test-scale test-faults fuzz damage lint bench docs slurm slurm-stop clean
PYTHON ?= python3
BIN := .venv/bin
DEMO := .windlass/demo

# `python` in the study is the one of .venv, as in an activated environment.
demo: export PATH := $(CURDIR)/$(BIN):$(PATH)
demo: .venv/.demo
	rm -rf $(DEMO)
	$(BIN)/windlass run examples/quickstart/study.yaml --folder $(DEMO) --on local --here
	$(BIN)/windlass results --folder $(DEMO) --by all
	@echo "the best setting:"
	$(BIN)/windlass results --folder $(DEMO) --best

fuzz: .venv/.dev
	$(BIN)/python -m tests.fuzzing --inputs 20000

# Each call on a study's folder fails once, with each error: hours. FAULTS="--every 10" or "--minutes 30" for a part.
test-faults: .venv/.dev
	$(BIN)/python -m tests.faulty --looks $(FAULTS)
	$(BIN)/python -m tests.faulty $(FAULTS)

damage: .venv/.dev
	$(BIN)/python -m tests.damaging --folders 3000

# Bytecode is written, as it is for users. What pytest makes of the tests is made once, and not by each of its workers.
test: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.dev
	sh scripts/setup.sh test
	$(BIN)/python -m compileall -q src  # as it is where it was installed: tests start thousands of processes
	$(BIN)/python -m pytest --collect-only -q > /dev/null || true
	$(BIN)/python -m pytest -n 6 --dist worksteal --durations 20

# The tests of survival, interruption, staging and outputs on every network file system that is packaged. About ten minutes each.
FILE_SYSTEMS ?= sshfs sshfs-uncached sshfs-without-links moosefs glusterfs
FILE_SYSTEM_TESTS := $(patsubst %,tests/real/test_%.py,storage file_systems survival interruption chain staging outputs end_of_study)
test-file-systems: .venv/.dev
	PYTHON=$(PYTHON) sh scripts/setup.sh slurm
	sh scripts/setup.sh file-systems
	failed=; for kind in $(FILE_SYSTEMS); do \
	    echo "== $$kind"; \
	    WINDLASS_TEST_SCRATCH=$$kind $(BIN)/python -m pytest -n 2 --dist worksteal $(FILE_SYSTEM_TESTS) || failed="$$failed $$kind"; \
	done; [ -z "$$failed" ] || { echo "failed on:$$failed"; exit 1; }

# 200 agents of two studies at once, on a real Slurm and MooseFS. About five minutes.
test-scale: .venv/.dev
	PYTHON=$(PYTHON) sh scripts/setup.sh slurm
	sh scripts/setup.sh file-systems
	$(BIN)/python -m tests.scale

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.dev
	sh scripts/setup.sh bench
	$(BIN)/python bench/all.py

docs: .venv/.dev
	$(BIN)/python scripts/write_docs.py

# A real Slurm with four nodes, in .slurm/.
slurm:
	@PYTHON=$(PYTHON) sh scripts/setup.sh slurm
	@$(PYTHON) -m scripts.slurm start

slurm-stop:
	@$(PYTHON) -m scripts.slurm stop

.venv/.demo: pyproject.toml scripts/setup.sh
	PYTHON=$(PYTHON) sh scripts/setup.sh demo

.venv/.dev: pyproject.toml scripts/setup.sh
	PYTHON=$(PYTHON) sh scripts/setup.sh dev

clean:
	rm -rf .venv .windlass .mypy_cache .ruff_cache .pytest_cache .hypothesis
