# One line per need. Everything runs from .venv, which is made on first use and kept until pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
VERSION ?=
LOCK := requirements-dev.lock
# Two processes more than there are cores, six at most: tests wait as long as they compute. `ARGS=-n0` runs them in one.
PROCESSES = $(shell $(PYTHON) -c 'import os; print(min(6, (os.cpu_count() or 1) + 2))')
# Installs packages of Debian if a command of theirs is missing.
bring = { command -v $(1) > /dev/null || { apt-get update && apt-get install --yes --no-install-recommends $(2); }; }
SHARED = -n $(PROCESSES) --dist worksteal
# Whatever the environment says: without stored bytecode each process of a test would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
# Threads of a matrix library that wait for each other on cores that are busy take four times as long.
test test-full durations coverage test-torch-core: export OPENBLAS_NUM_THREADS := 1
test test-full durations coverage test-torch-core: export OMP_NUM_THREADS := 1

.NOTPARALLEL:
.PHONY: demo test test-full durations test-pythons test-tfdata compile-tests torch test-torch-core test-torch test-frameworks test-slurm test-engines test-mpi test-looking test-formats dashboard-demo simulate fuzz coverage lint types layers docs bench bench-quick bench-curves bench-publish bench-dataset bench-sharing bench-torch bench-gpu bench-formats bench-packing bench-mixing build locked lock release audit clean bench-attacks
demo: .venv/.run-ready ; $(BIN)/python examples/audit.py $(ARGS)
test: .venv/.dev-ready ; $(BIN)/python -m pytest $(SHARED) $(ARGS)
# The hundred slowest tests of `make test`, in a file that git ignores.
durations: .venv/.dev-ready ; $(BIN)/python -m pytest $(SHARED) --durations=100 --durations-min=0.1 $(ARGS) > .durations.txt || { tail -n 40 .durations.txt; exit 1; } ; sed -n '/slowest/,$$p' .durations.txt
test-full: .venv/.dev-ready ; $(BIN)/python -m pytest $(SHARED) --full $(ARGS)
# The fast part of the tests on each version of Python that this machine has: tools/bring_python.py brings others.
test-pythons: ; $(PYTHON) -m tools.test_pythons $(ARGS)
test-tfdata: .venv-tfdata/.ready ; ZMQDATA_CHAINS=$${ZMQDATA_CHAINS:-5000} .venv-tfdata/bin/python -m pytest tests/tfdata $(ARGS)
# Compiles the tests once, in two processes. In a fresh clone each process of `make test` would compile all of them.
# A test that cannot be imported is for `make test` to report.
compile-tests: .venv/.dev-ready ; find tests -name 'test_*.py' | sort | xargs -n 250 -P 2 $(BIN)/python -m pytest -n0 --collect-only --quiet > /dev/null || true
# torch beside the packages of .venv, in an environment of its own.
torch: .venv-torch-core/.ready
# `zmqdata.torch` on the CPU.
test-torch-core: .venv-torch-core/.ready ; .venv-torch-core/bin/python -m pytest tests/pytorch $(SHARED) $(ARGS)
# torch, its trainers, JAX, Keras and TensorFlow, with programs that die and resume, also on two ranks: never in .ci/run.
test-torch: .venv-torch/.ready ; .venv-torch/bin/python -m pytest tests/pytorch $(addprefix tests/frameworks/test_,pages.py torch*.py lightning.py accelerate.py transformers.py values.py jax.py keras.py tensorflow.py) $(ARGS)
# Programs of Ray and a notebook, on real processes: never in .ci/run.
test-frameworks: .venv-frameworks/.ready ; .venv-frameworks/bin/python -m pytest tests/frameworks/test_ray.py tests/frameworks/test_notebook.py $(ARGS)
# As root, on Debian and Ubuntu: the daemons of Slurm run in a temporary folder while the tests do.
test-slurm: .venv/.dev-ready ; $(call bring,srun,slurm-wlm munge) && ZMQDATA_LAUNCHERS=1 $(BIN)/python -m pytest tests/frameworks/test_slurm.py $(ARGS)
# The same suite of hosts on this machine, on a Slurm of three nodes, on Ray and on Dask; the chart and the image: never in .ci/run.
test-engines: .venv-engines/.ready ; $(call bring,srun,slurm-wlm munge) && $(call bring,podman,podman) && $(call bring,runc,runc) && $(call bring,debootstrap,debootstrap) && ZMQDATA_ENGINES=1 .venv-engines/bin/python -m pytest tests/engines $(ARGS)
test-mpi: .venv/.dev-ready ; $(call bring,mpirun.openmpi,openmpi-bin) && ZMQDATA_LAUNCHERS=1 $(BIN)/python -m pytest tests/frameworks/test_mpi.py $(ARGS)
# Pages in a real browser, and each panel and alert rule put to a real Prometheus: never in .ci/run.
test-looking: .venv-looking/.ready ; $(call bring,chromium,chromium) && $(call bring,promtool,prometheus) && ZMQDATA_LOOKING=1 .venv-looking/bin/python -m pytest tests/looking tests/dashboard $(ARGS)
# Files of an emulator of S3: never in .ci/run.
test-formats: .venv-formats/.ready ; .venv-formats/bin/python -m pytest tests/formats $(ARGS)
# A cluster with a slow operation, and the page that shows it.
dashboard-demo: .venv/.run-ready ; $(BIN)/python examples/dashboard.py $(ARGS)
fuzz: .venv/.dev-ready ; $(BIN)/python tools/fuzz.py $(ARGS)
simulate: .venv/.dev-ready ; $(BIN)/python -m tools.simulate $(ARGS)
coverage: .venv/.dev-ready ; $(BIN)/python -m pytest $(SHARED) -m 'not realprocess' --cov --cov-context=test --cov-report= $(ARGS) $$($(BIN)/python tools/own_coverage.py --tests) && $(BIN)/python tools/own_coverage.py
lint: .venv/.dev-ready ; $(BIN)/ruff check . && $(BIN)/ruff format --check .
types: .venv/.dev-ready ; $(BIN)/mypy
layers: .venv/.dev-ready ; $(BIN)/lint-imports
docs: .venv/.run-ready ; $(BIN)/python docs/check_links.py
bench: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks run $(ARGS)
bench-quick: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks run --quick $(ARGS)
bench-curves: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks curves $(ARGS)
bench-publish: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks publish $(ARGS)
bench-dataset: .venv-bench/.ready ; TF_CPP_MIN_LOG_LEVEL=3 .venv-bench/bin/python benchmarks/dataset.py $(ARGS)
bench-sharing: .venv/.run-ready ; $(BIN)/python -m benchmarks.sharing $(ARGS)
bench-torch: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks.dataloaders $(ARGS)
bench-gpu: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks.gpu $(ARGS)
# Parquet, Arrow, JSON Lines and Hugging Face beside their own readers.
bench-formats: .venv-formats/.ready ; .venv-formats/bin/python -m benchmarks.formats $(ARGS)
# pack beside Grain's, in processor seconds and padding.
bench-packing: .venv-bench/.ready ; .venv-bench/bin/python -m benchmarks.packing $(ARGS)
# The schedule of mix, and mix beside sample_from_datasets, in processor time.
bench-mixing: .venv/.run-ready ; $(BIN)/python -m benchmarks.mixing $(ARGS)
bench-attacks: .venv/.run-ready ; $(BIN)/python -m benchmarks.attacks $(ARGS)
build: .venv/.dev-ready ; rm -rf build dist && $(BIN)/python -m build
# The exact packages of the lock, by their hashes, instead of the newest ones: before any of the above, as .ci/run does.
locked: .venv/.locked-ready
lock: .venv-lock/.ready ; .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --extra dev --custom-compile-command "make lock" $(ARGS) pyproject.toml -o $(LOCK)
# Everything up to the tag, in docs/releasing.md: make release VERSION=x.y.z
release: .venv-lock/.ready ; .venv-lock/bin/python -m tools.release $(VERSION) $(ARGS)
audit: .venv-lock/.ready ; .venv-lock/bin/python tools/audit.py $(LOCK)
clean: ; rm -rf .venv .venv-engines .venv-tfdata .venv-frameworks .venv-torch .venv-torch-core .venv-looking .venv-formats .venv-bench .venv-lock .venv-pythons build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .durations.txt

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 14) else f"zmqdata needs Python 3.10 to 3.14, and $(PYTHON) is {v[0]}.{v[1]}; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

.venv/.run-ready: pyproject.toml setup.py | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.dev-ready: pyproject.toml setup.py | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ .venv/.run-ready

.venv/.locked-ready: pyproject.toml setup.py $(LOCK) | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes --requirement $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@ .venv/.dev-ready .venv/.run-ready

# Sees the packages of .venv. Only what is imported is compiled, once for all processes.
.venv-torch-core/.ready: .venv/.dev-ready
	rm -rf .venv-torch-core && $(BIN)/python -m venv --without-pip .venv-torch-core
	$(BIN)/python -c 'import sysconfig as s; print("import site; site.addsitedir(%r)" % s.get_path("purelib"))' > .venv-torch-core/base.pth
	mv .venv-torch-core/base.pth "$$(.venv-torch-core/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')"
	$(BIN)/python -m pip --python .venv-torch-core/bin/python install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	@.venv-torch-core/bin/python -c "import torch.utils.data"
	@touch $@

.venv-lock/.ready: pyproject.toml Makefile
	@test -x .venv-lock/bin/python || $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check build "pip-audit>=2.9" "twine>=6" "uv>=0.5"
	@touch $@

.venv-tfdata/.ready: pyproject.toml setup.py
	@test -x .venv-tfdata/bin/python || $(PYTHON) -m venv .venv-tfdata
	.venv-tfdata/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,tfdata]"
	@touch $@

.venv-frameworks/.ready: pyproject.toml setup.py
	@test -x .venv-frameworks/bin/python || $(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,frameworks]"
	@touch $@

.venv-engines/.ready: pyproject.toml setup.py
	@test -x .venv-engines/bin/python || $(PYTHON) -m venv .venv-engines
	.venv-engines/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,engines-tests]"
	@touch $@

.venv-torch/.ready: pyproject.toml setup.py
	@test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,torch-tests]"
	@touch $@

.venv-looking/.ready: pyproject.toml setup.py
	@test -x .venv-looking/bin/python || $(PYTHON) -m venv .venv-looking
	.venv-looking/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,looking-tests]"
	@touch $@

.venv-formats/.ready: pyproject.toml setup.py
	@test -x .venv-formats/bin/python || $(PYTHON) -m venv .venv-formats
	.venv-formats/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,formats-tests]"
	@touch $@

.venv-bench/.ready: pyproject.toml setup.py
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,bench]"
	@touch $@
