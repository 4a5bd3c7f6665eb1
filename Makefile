# make demo, make test and make bench each set up all they need: Python 3.11 or newer and make are enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test pytest fuzz thorough lint bench bench-gpu quick-studies quick-image-studies dist try-dist docs try-docs clean

# What tests hardly import, which is a third of all: Python compiles what it needs of it by itself.
SELDOM := /tests?/|/(ray|mypyc?|pip|setuptools|networkx|playwright|pydantic|pygments|fontTools|torchgen)/|/torch/(ao|onnx|testing)/

$(READY): pyproject.toml constraints.txt peers.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,ray]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r peers.txt
	$(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' .venv/lib src || true  # on all cores; pip would take one
	@touch $(READY)

demo: $(READY)
	$(BIN)/windermere demo --out runs/demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Linters run beside the tests, since both leave cores idle at times.
test: $(READY)
	$(MAKE) -j2 lint pytest

pytest: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal $(TESTS)  # two processes of two threads each would fight

# 10,000 examples that were not tried before, and a training killed 100 times; an hour at most.
fuzz: $(READY)
	WINDERMERE_FUZZ=weekly OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m '' tests/fuzz

thorough: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m thorough

bench: $(READY)
	$(BIN)/python -m benchmarks

QUICK_COMPUTED := fan crossing-field sphere2-data smaller-step-sphere2

QUICK := trajectories decision-regions sphere2-fixed sphere3-fixed sphere10-fixed sphere900-fixed sphere2-adaptive \
	sphere2-adjoint step-adaptation-sphere2 tolerance-adaptation-sphere2 critical-steps tied-sampler recipes \
	one-law what-being-tied-costs

QUICK_IMAGES := mnist-fixed mnist-adaptive step-adaptation-mnist cifar10-fixed cifar10-adaptive step-adaptation-cifar10 table1 \
	tied-sampler-images recipes-mnist what-being-tied-costs-mnist

quick-studies: $(READY)
	set -e; for name in $(QUICK_COMPUTED); do $(BIN)/windermere study run $$name --quick; done
	set -e; for name in $(QUICK); do $(BIN)/windermere study run $$name --quick --seeds 1; done

quick-image-studies: $(READY)
	$(BIN)/windermere data get mnist
	$(BIN)/windermere data get cifar10
	set -e; for name in $(QUICK_IMAGES); do $(BIN)/windermere study run $$name --quick; done

bench-gpu: $(READY)
	$(BIN)/python -m benchmarks.gpu runs/gpu

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build

try-dist: dist
	$(BIN)/python tests/installed.py dist/*.whl dist/*.tar.gz

# The site, in docs/_build/html. Tutorials run when they have changed, and are kept in docs/_build/.jupyter_cache.
DOCS_READY := .venv/.docs

$(DOCS_READY): $(READY) docs/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c docs/constraints.txt -e '.[docs]'
	@touch $(DOCS_READY)

docs: $(DOCS_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going -j auto -q docs docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/windermere demo --out docs/_build/demo > docs/_build/demo.txt
	cp docs/_build/demo/index.html docs/_build/html/play-page.html

# The built site in Chromium: axe on every page.
try-docs: docs
	$(BIN)/python -m tests.site docs/_build/html

clean:
	rm -rf .venv build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
