# Two commands matter: `make run` and `make test`. Each sets up everything it needs in .venv first.
PYTHON ?= python3
VENV := .venv
LIGHT := .venv-light
AUDIT := .venv-audit
DOCS := .venv-docs
WHEEL := .venv-wheel
MINUTES ?= 30
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

.PHONY: run test test-without-torch package fuzz audit docs reproduce clean

# The main job on a generated graph with a known shift; the second time it only shows what was found.
run: $(VENV)/.run
	test -d out/example-graph || $(BIN)/impact generate --out out/example-graph --protocol released --decay 0.6
	$(BIN)/impact run out/example-graph --out out/example --cutoff 8 --effort quick

test: $(VENV)/.test
	$(BIN)/ruff check src tests examples reproduction tools
	$(BIN)/ruff format --check src tests examples reproduction tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/readable.py
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --durations=20

# The array layers must import and work where torch is not installed.
test-without-torch: $(LIGHT)/.ready
	$(LIGHT)/bin/python tests/without_torch.py

# The fuzz tests with new seeds for so many minutes: make fuzz MINUTES=30.
fuzz: $(VENV)/.test
	FUZZ_MINUTES=$(MINUTES) OMP_NUM_THREADS=1 $(BIN)/pytest -n auto tests/test_fuzz.py tests/test_fuzz_values.py tests/test_fuzz_folders.py \
		tests/test_modified_models.py tests/test_damaged_files.py

# Known holes and licences of the locked set, our own code, and a list of all parts. Needs a package index that knows
# advisories; one that does not makes it fail, rather than say that all is well.
audit: $(VENV)/.run $(AUDIT)/.ready
	$(AUDIT)/bin/bandit --quiet --recursive src --severity-level medium
	$(AUDIT)/bin/pip-licenses --python=$(BIN)/python --partial-match --fail-on="GPL;UNKNOWN" --summary
	mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-file dist/sbom.cdx.json
	$(AUDIT)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

# The site; its reference is read off the source, so nothing of the package is installed. Not --quiet: what is not
# logged is not counted, so --strict would let every warning pass.
docs: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# Builds wheel and sdist from a clean copy, installs the wheel alone, and runs the main job with it elsewhere. Its
# dependencies are borrowed from .venv by a path file: they are what takes minutes to install, not what is tested here.
package: $(VENV)/.package
	rm -rf dist/*.whl dist/*.tar.gz $(WHEEL)
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv --without-pip $(WHEEL)
	$(BIN)/python -m pip --python $(WHEEL)/bin/python install --quiet --disable-pip-version-check --no-deps dist/*.whl
	realpath $(VENV)/lib/python3*/site-packages > $$(echo $(WHEEL)/lib/python3*/site-packages)/borrowed.pth
	.ci/wheel $(WHEEL)

# Every study and some benchmarks in small sizes, in two minutes; `python -m reproduction` lists all of them.
reproduce: $(VENV)/.test
	$(BIN)/python -m reproduction table1 --seeds 2 --data tsbm --out out/reproduce
	$(BIN)/python -m reproduction table2 --dataset hetero-tsbm --seeds 2 --models SeHGNN --methods pmp --out out/reproduce
	$(BIN)/python -m reproduction table3 --graphs 2 --rows fixed --columns mmp,pmp,pmp+jjnorm --out out/reproduce
	$(BIN)/python -m reproduction gamma --graphs 2 --gammas 0.4,0.7 --models sgc --out out/reproduce
	$(BIN)/python -m reproduction bench propagation --nodes 50000 --edges 1000000 --widths 16,128 --rounds 3
	$(BIN)/python -m reproduction bench jjnorm --nodes 100000

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python $(PIP) --editable .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python $(PIP) --editable ".[test]"
	touch $@ $(VENV)/.run

$(VENV)/.package: pyproject.toml constraints.txt | $(VENV)/.run
	$(BIN)/python $(PIP) build
	touch $@

$(LIGHT)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python $(PIP) numpy scipy numba pyarrow narwhals tomli xxhash threadpoolctl joblib
	$(LIGHT)/bin/python $(PIP) --no-deps --editable .
	touch $@

$(AUDIT)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python $(PIP) pip-audit pip-licenses bandit cyclonedx-bom
	touch $@

$(DOCS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(PIP) mkdocs-material "mkdocstrings[python]"
	touch $@

clean:
	rm -rf $(VENV) $(LIGHT) $(AUDIT) $(DOCS) $(WHEEL) build dist site out src/*.egg-info
