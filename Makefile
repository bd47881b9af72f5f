# The project's commands; `make` alone lists them.
#
# Everything runs in .venv, a virtual environment of this checkout.  It is made from scratch when it is
# absent, incomplete, moved, or made from another requirements.lock, and otherwise left as it is.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help packages setup doctor repro test lint ui play serve bench gpu lock

# Which Python makes .venv; if empty, the first suitable one on the PATH.
PYTHON ?=
# Settings on top of conf/ for `make repro`, as for python -m ninegrid.params; if empty, params.yaml is as it is.
PARAMS ?=
# Of `make gpu`: --tiny, --quick.
GPU ?=
# Of `make ui`, `make play` and `make serve`; each has its own if empty.
PORT ?=

PIP := python -m pip --disable-pip-version-check -qq
# Programs that are started by name, as DVC starts the stages, come from .venv.
IN_VENV := set -e; export PATH="$$PWD/.venv/bin:$$PATH"; unset PYTHONHOME;

# Sets $python, or ends with a message.
FIND_PYTHON := set -e; \
  suits='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; \
  for python in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3 python none); do \
    if "$$python" -c "$$suits" 2>/dev/null; then break; fi; \
  done; \
  "$$python" -c "$$suits" 2>/dev/null || { \
    echo "make: Python 3.11 or 3.12 with its venv module is needed;" \
      "$(or $(PYTHON),what is on the PATH) is not that. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; };

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

# The stamp says what .venv holds, and is written last: without it, whatever lies there is half-made.
packages:
	@set -e; made_from="$$(cksum < requirements.lock) $$PWD"; \
	if ! .venv/bin/python -c '' 2>/dev/null || [ "$$(cat .venv/packages 2>/dev/null)" != "$$made_from" ]; then \
	  command -v git >/dev/null || { echo "make: git is needed: DVC works in a git repository" >&2; exit 1; }; \
	  $(FIND_PYTHON) \
	  echo "[setup] making the virtual environment .venv with $$("$$python" --version)"; \
	  "$$python" -m venv --clear .venv; \
	  echo "[setup] installing the packages of requirements.lock (2 GB and more, takes minutes)"; \
	  .venv/bin/$(PIP) install -r requirements.lock; \
	  echo "$$made_from" > .venv/packages; \
	fi

setup: packages ## make .venv with the locked packages and this project
	@set -e; made_from="$$(cksum < pyproject.toml)"; \
	if [ "$$(cat .venv/project 2>/dev/null)" != "$$made_from" ]; then \
	  echo "[setup] linking this checkout into .venv"; \
	  .venv/bin/$(PIP) install --no-deps --no-build-isolation -e .; \
	  echo "$$made_from" > .venv/project; \
	fi

# Whatever Python there is: it has to say what is wrong where `make setup` has not been run, or has failed.
doctor: ## check this machine and this checkout, and say what to do next
	@if .venv/bin/python -c '' 2>/dev/null; then $(IN_VENV) exec python -m ninegrid.doctor; \
	else $(FIND_PYTHON) exec "$$python" -m ninegrid.doctor; fi

repro: setup ## run the stages of the loop that are not up to date
	@echo "[repro] $(if $(PARAMS),composing,checking) params.yaml"
	@$(IN_VENV) python -m ninegrid.params $(or $(PARAMS),--check)
	@echo "[repro] running the stages whose settings, code or data have changed (dvc repro)"
	@$(IN_VENV) python -m dvc repro
	@$(IN_VENV) python -m ninegrid.summary

test: setup ## run the tests
	@echo "[test] python -m pytest"
	@$(IN_VENV) python -m pytest

lint: setup ## check style and types
	@echo "[lint] ruff check, ruff format --check, mypy"
	@$(IN_VENV) python -m ruff check --quiet .; python -m ruff format --check --quiet .; python -m mypy --no-error-summary

ui: setup ## look at the runs in MLflow, at port 5000 or: make ui PORT=N
	@$(IN_VENV) exec python -m ninegrid.tracking ui --port $(or $(PORT),5000)

serve: setup ## answer OpenAI clients with the trained policy, at port 8000 or: make serve PORT=N
	@$(IN_VENV) exec python -m ninegrid.serving --port $(or $(PORT),8000)

play: setup ## play against what was trained, at port 8080 or: make play PORT=N
	@$(IN_VENV) exec python -m ninegrid.play --port $(or $(PORT),8080)

bench: repro ## measure speed and memory, beside TRL (about 40 minutes); prints tables, keeps nothing
	@$(IN_VENV) python -m benchmarks

gpu: setup ## test and measure on a GPU (about an hour); make gpu GPU=--tiny shows on the CPU that it runs
	@$(IN_VENV) python -m benchmarks gpu $(GPU)

# `PIP_CONSTRAINT=requirements.lock make lock` keeps the versions that are pinned already.
lock: ## write requirements.lock anew from pyproject.toml
	@$(FIND_PYTHON) echo "[lock] resolving pyproject.toml in a fresh environment (takes minutes)"; \
	"$$python" -m venv --clear .venv/lock; \
	.venv/lock/bin/$(PIP) install -e '.[dev]'; \
	{ echo '# The whole environment, exactly.  Written by `make lock` from pyproject.toml; do not edit.'; \
	  .venv/lock/bin/python -m pip freeze --all --exclude pip --exclude-editable; } \
	  | sed -E -e '/^(nvidia|cuda|triton)([-_].*)?==/d' -e 's/\+[^=]*$$//' > .venv/requirements.lock; \
	mv .venv/requirements.lock requirements.lock; rm -rf .venv/lock
