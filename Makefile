# Every command prepares what it needs: tmux, git, .venv and the locked dependencies (tools/setup.sh).
.SUFFIXES:
.PHONY: help setup demo test check clients bench bench-peers pictures soak lock format

PYTHON ?= python3
PYTEST_ARGS ?=
# Tests wait for real processes a third of the time: with as many workers as cores, two, these are often idle.
WORKERS ?= 6
SOAK_WORKERS ?= 4
LOCK_ARGS ?=
BENCH_ARGS ?=

export PYTHON
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

LOCK = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(LOCK_ARGS)

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

setup: ## prepare .venv and the tools; silent when nothing is to do
	@tools/setup.sh

demo: setup ## five analysts look at a small package with planted problems at once, and a report opens
	@tools/demo.sh

test: setup ## run every test; root runs them as an ordinary user, and as itself what differs
	@tools/setup.sh --tests
	tools/test.sh -n $(WORKERS) $(PYTEST_ARGS)

check: setup ## ruff, mypy, the import rules, the size, and whether the documents are complete
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	@.venv/bin/python tools/size.py --budget tools/size.toml
	.venv/bin/pytest -q tests/test_docs.py tests/test_house.py tests/test_packaging.py

bench: setup ## measure spawning, idling and adopting on this machine; BENCH_ARGS=--quick is short
	@.venv/bin/nightcrew bench spawn $(BENCH_ARGS)

bench-peers: setup ## the gateway beside LiteLLM's proxy, which is installed outside this checkout (750 MB)
	@tools/peers.sh
	@.venv/bin/nightcrew bench gateway $(BENCH_ARGS)

clients: setup ## the real agents (Claude Code, Codex, Gemini CLI, Qwen Code, opencode, aider), outside this checkout, for the contract tests
	@tools/clients.sh

pictures: setup ## make the pictures of the documents anew: a real crew, looked at for a minute through tmux and in Chromium
	@.venv/bin/python tools/pictures.py

soak: setup ## run the long forms of the fault tests, and the property and random tests on other examples each time
	@.venv/bin/python -m compileall -q -j 2 nightcrew supervisor agents memory worktrees tests || true # or, where nothing is kept, every start compiles
	NIGHTCREW_TEST_COLD=1 NIGHTCREW_TEST_RANDOM=1 .venv/bin/pytest -m "soak or hypothesis or seeded" --timeout 3600 -n $(SOAK_WORKERS) --dist worksteal $(PYTEST_ARGS)

format: setup ## lay out the code as `make check` wants it
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

lock: setup ## bring requirements/ up to pyproject.toml; LOCK_ARGS=--upgrade takes newer releases
	$(LOCK) pyproject.toml requirements/build.in --group dev --output-file requirements/dev.txt
	$(LOCK) pyproject.toml --constraint requirements/dev.txt --output-file requirements/runtime.txt
