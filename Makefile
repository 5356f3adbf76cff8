# make demo                        the digits example, on JAX
# KERAS_BACKEND=torch make demo    the same on another backend
# make test                        style, types, documentation, then the tests on all
#                                  three backends, without the slow ones
# make test-all PART=docs          all tests of a part on all backends, slow ones too
# make coverage                    lines that the tests of all backends reach
# make test-oldest                 tests on all three backends with the oldest Keras that
#                                  pyproject.toml declares
# make test-optimised              the contract on JAX as XLA optimises it for users
# make demos                       the digits example, quick, on all three backends
# make accelerator                 what is to be measured on an accelerator;
#                                  ARGS=--quick shows on a CPU that it works
# make peers DATA_DIR=folder       the benchmark, with its peers in an environment of its own
# make docs                        the documentation site, in site/
# make notebooks                   runs examples/notebooks and makes their pages
#
# All set up what they need under .venv/ on the first call, and set it up again
# only when pyproject.toml or constraints.txt has changed.

PYTHON        ?= python3
KERAS_BACKEND ?= jax
BACKENDS      ?= jax tensorflow torch
PYTEST_ARGS   ?=
JOBS          ?= 2
DEMO_ARGS     ?=
ARGS          ?=

VENVS      := .venv
TEST       := $(VENVS)/test
DEMO       := $(VENVS)/demo-$(KERAS_BACKEND)
OLDEST     := $(VENVS)/keras-oldest
SETUP_DEPS := pyproject.toml constraints.txt

KERAS_OLDEST := $(shell sed -n 's/.*"keras>=\([0-9.]*\)".*/\1/p' pyproject.toml)

# torch is installed first and alone, with its version spelled out: a resolver
# that is asked for torch among other packages may choose a newer build that
# carries several gigabytes of GPU libraries.
TORCH := $(shell grep '^torch==' constraints.txt)
# The smaller CPU-only TensorFlow exists for Linux on x86-64.
TENSORFLOW := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),tensorflow-cpu,tensorflow)

PACKAGE_jax        := jax
PACKAGE_tensorflow := $(TENSORFLOW)
PACKAGE_torch      := $(TORCH)

PIP_INSTALL := -m pip install -q --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help accelerator demo demos peers test test-all test-oldest test-optimised coverage lint docs notebooks clean

help:
	@echo "make demo    run examples/digits.py (KERAS_BACKEND=jax|tensorflow|torch,"
	@echo "             DEMO_ARGS='...' is passed on)"
	@echo "make test    style, types, documentation, then the tests on every backend,"
	@echo "             without the slow ones"
	@echo "             (PYTEST_ARGS='-k sgld' is passed on, BACKENDS='torch' selects,"
	@echo "             JOBS=4 runs as many processes; each takes up to 4 GB with JAX)"
	@echo "make test-all  all tests on all backends, in parts (PART='docs posterior' selects),"
	@echo "             which go on where they stopped"
	@echo "make test-oldest     tests with the oldest Keras that is declared"
	@echo "make test-optimised  the contract on JAX as XLA optimises it for users"
	@echo "make demos   the digits example, quick, on all three backends"
	@echo "make accelerator  what is to be measured on an accelerator (BACKENDS='jax torch'"
	@echo "             selects, ARGS='--data-dir folder' is passed on, ACCELERATED_PYTHON="
	@echo "             names a Python whose backends use it; ARGS=--quick also on a CPU)"
	@echo "make coverage  lines of the package that the tests of all backends reach"
	@echo "make lint    style and types alone"
	@echo "make docs    the documentation site, in site/index.html"
	@echo "make peers   examples/benchmark.py, with its peers in an environment of its own"
	@echo "             (DATA_DIR names the folder of the data sets, ARGS='--splits 0' is"
	@echo "             passed on)"
	@echo "make notebooks  runs examples/notebooks and makes their pages (DATA_DIR names"
	@echo "             the folder of the data sets)"
	@echo "make clean   remove the virtual environments and caches"

ifeq ($(PACKAGE_$(KERAS_BACKEND)),)
demo:
	@echo "KERAS_BACKEND must be one of jax, tensorflow, torch. Received: KERAS_BACKEND=$(KERAS_BACKEND)" >&2
	@exit 1
else
demo: $(DEMO)/.stamp
	@echo "== examples/digits.py on $(KERAS_BACKEND)"
	@KERAS_BACKEND=$(KERAS_BACKEND) TF_CPP_MIN_LOG_LEVEL=3 $(DEMO)/bin/python examples/digits.py $(DEMO_ARGS)
endif

lint: $(TEST)/.stamp
	@echo "== ruff"
	@$(TEST)/bin/ruff check .
	@$(TEST)/bin/ruff format --check .
	@echo "== mypy"
	@$(TEST)/bin/mypy

# Strict: a link that leads nowhere or a name without a docstring is an error.
BUILD_DOCS := KERAS_BACKEND=jax NO_MKDOCS_2_WARNING=1 TF_CPP_MIN_LOG_LEVEL=3 sh -c \
    '$(TEST)/bin/mkdocs build --strict && $(TEST)/bin/python docs/tools/check_site.py site'

docs: $(TEST)/.stamp
	@echo "== documentation"
	@$(BUILD_DOCS)
	@$(TEST)/bin/python docs/tools/check_pages.py site

notebooks: $(TEST)/.stamp
	@DATA_DIR=$(DATA_DIR) $(TEST)/bin/python docs/tools/notebooks.py

# Without bytecode each process would compile all tests and the package anew.
export PYTHONDONTWRITEBYTECODE :=

# JAX spends most of the tests in compiling: the short form asks for less of it.
QUICK_XLA := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true

# $(call run_tests,options of pytest,flags of XLA): every step runs, whatever the ones before it
# said; the last line tells. PARTS names a file that gets the seconds of each step.
PARTS ?= $(VENVS)/parts
TIMED := PARTS=$(PARTS) tests/part.sh
SEEN  := $(VENVS)/turns
define run_tests
@failed=""; rm -rf $(SEEN); \
$(TIMED) ruff sh -c '$(TEST)/bin/ruff check . && $(TEST)/bin/ruff format --check .' \
    || failed=" ruff"; \
$(TIMED) mypy $(TEST)/bin/mypy || failed="$$failed mypy"; \
$(TIMED) site env $(BUILD_DOCS) || failed="$$failed site"; \
for backend in $(BACKENDS); do \
    flags="$(XLA_FLAGS)"; test $$backend != jax || flags="$$flags $(2)"; \
    KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=3 OMP_NUM_THREADS=1 XLA_FLAGS="$${flags# }" \
        TURNS_FOLDER=$(SEEN) $(TIMED) "tests on $$backend" \
        $(TEST)/bin/python -m pytest -n $(JOBS) --dist worksteal $(1) $(PYTEST_ARGS) \
        || failed="$$failed $$backend"; \
done; \
test -n "$(PYTEST_ARGS)" || $(TEST)/bin/python tests/turns.py $(SEEN) \
    || failed="$$failed turns"; \
if [ -n "$$failed" ]; then echo "== FAILED:$$failed" >&2; exit 1; fi; \
echo "== all passed: ruff mypy site $(BACKENDS) turns"
endef

test: $(TEST)/.stamp
	$(call run_tests,-m 'not slow',$(QUICK_XLA))

# All tests on all backends, in parts that go on where they stopped; tests/full_run.json says
# what passed when. PART='docs posterior' selects, ARGS='--commits 20' takes older runs.
test-all: lint
	@$(TEST)/bin/python tests/full_run.py $(if $(PART),--part $(PART)) --jobs $(JOBS) \
	    --backends $(BACKENDS) $(ARGS)

# What differs between versions of Keras: steps, slots, files, metrics, trainers.
OLDEST_TESTS := tests/fit/test_contract.py \
    tests/posterior/test_posterior.py \
    tests/posterior/test_two_collections.py \
    tests/ensemble/test_ensemble.py \
    tests/parallel/test_parallel.py \
    tests/fit/test_models_people_write.py

test-oldest: $(OLDEST)/.stamp
	@failed=""; \
	for backend in $(BACKENDS); do \
	    echo "== pytest on $$backend, Keras $(KERAS_OLDEST)"; \
	    flags=""; test $$backend != jax || flags="$(QUICK_XLA)"; \
	    PYTHONPATH=$(CURDIR)/$(OLDEST) KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=3 \
	        OMP_NUM_THREADS=1 XLA_FLAGS="$$flags" $(TEST)/bin/python -m pytest -n $(JOBS) \
	        --dist worksteal -m 'not slow' $(OLDEST_TESTS) $(PYTEST_ARGS) \
	        || failed="$$failed $$backend"; \
	done; \
	if [ -n "$$failed" ]; then echo "== FAILED:$$failed" >&2; exit 1; fi

test-optimised: $(TEST)/.stamp
	@echo "== pytest on jax, XLA's default optimisation"
	@KERAS_BACKEND=jax OMP_NUM_THREADS=1 $(TEST)/bin/python -m pytest -n $(JOBS) \
	    --dist worksteal -m 'not slow' tests/fit/test_contract.py $(PYTEST_ARGS)

demos: $(TEST)/.stamp
	@for backend in $(BACKENDS); do \
	    echo "== examples/digits.py --quick on $$backend"; \
	    KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=3 $(TEST)/bin/python \
	        examples/digits.py --quick --out $(VENVS)/out || exit 1; \
	done

# The packages of .venv/test use the CPU. On an accelerator, name a Python that has others.
ACCELERATED_PYTHON ?= $(TEST)/bin/python
accelerator: $(if $(filter $(TEST)/%,$(ACCELERATED_PYTHON)),$(TEST)/.stamp)
	@failed=""; \
	for backend in $(BACKENDS); do \
	    KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=3 $(ACCELERATED_PYTHON) \
	        examples/accelerator.py $(ARGS) || failed="$$failed $$backend"; \
	done; \
	if [ -n "$$failed" ]; then echo "== not finished:$$failed" >&2; exit 1; fi

peers: $(VENVS)/peers/.stamp
	@$(VENVS)/peers/bin/python examples/benchmark.py --data-dir $(DATA_DIR) $(ARGS)

coverage: $(TEST)/.stamp
	@rm -f .coverage
	$(call run_tests,-m 'not slow' --cov=keras_mhmcmc --cov-append --cov-report=,$(QUICK_XLA))
	@$(TEST)/bin/coverage report --skip-covered --fail-under=95

# $(call create_venv,folder)
define create_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: $$($(PYTHON) --version 2>&1)" >&2; \
    echo "Name another one with, for example, 'make PYTHON=python3.12 ...'." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
    echo "'$(PYTHON)' lacks the venv module (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }
@$(PYTHON) -m venv $(1)
endef

$(TEST)/.stamp: $(SETUP_DEPS)
	@echo "== creating $(TEST)"
	$(call create_venv,$(TEST))
	@echo "== installing $(TORCH) (once, a few minutes)"
	@$(TEST)/bin/python $(PIP_INSTALL) $(TORCH)
	@echo "== installing jax, tensorflow and the development tools (once, a few minutes)"
	@$(TEST)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[dev,docs]' jax $(TENSORFLOW)
	@touch $@

# The same environment with another Keras before its own.
$(OLDEST)/.stamp: $(TEST)/.stamp
	@echo "== installing keras $(KERAS_OLDEST)"
	@rm -rf $(OLDEST)
	@$(TEST)/bin/python $(PIP_INSTALL) --no-deps --target $(OLDEST) 'keras==$(KERAS_OLDEST).0'
	@touch $@

$(VENVS)/demo-%/.stamp: $(SETUP_DEPS)
	@echo "== creating $(@D)"
	$(call create_venv,$(@D))
	@echo "== installing $(PACKAGE_$*) (once, a few minutes)"
	@$(@D)/bin/python $(PIP_INSTALL) $(if $(filter torch,$*),,-c constraints.txt) $(PACKAGE_$*)
	@echo "== installing keras_mhmcmc and what the example needs (once, a minute)"
	@$(@D)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[plots]' scikit-learn
	@touch $@

# Not all of constraints.txt: the peers need an older blackjax.
$(VENVS)/peers/.stamp: $(SETUP_DEPS)
	@echo "== creating $(@D)"
	$(call create_venv,$(@D))
	@$(@D)/bin/python $(PIP_INSTALL) -e '.[data,stats]' sklearn-contrib-bde==1.0.2 \
	    $(shell grep -E '^(keras|jax|jaxlib)==' constraints.txt)
	@touch $@

clean:
	rm -rf $(VENVS) build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
	find keras_mhmcmc tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
