# Everything runs in .venv; the only things needed beforehand are Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 3

.PHONY: install demo demo-task test check bench bench-large campaign mutants eval clean

install: $(STAMP)

$(STAMP): pyproject.toml setup.py $(wildcard src/keepfast/*/*.[ch])
	@echo "Installing into .venv; that takes a minute or two, once."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev,faults]'
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q src/keepfast
	touch $(STAMP)

demo: install
	@$(BIN)/python tools/demo.py

demo-task: install
	@$(BIN)/python tools/demo_task.py

# In a folder of its own, so that what an earlier run left behind does not matter.
test: install
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(BIN)/python -m pytest -n $(WORKERS) --basetemp "$$folder/t"

check: install
	$(BIN)/ruff check src tests bench tools
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	@echo "The way of a resume:"
	$(BIN)/coverage report --fail-under=90 --include="$(RESUME)"

# What makes notes, briefs, settings and the tools of agents; `make check` prints its own share of lines and branches.
RESUME := src/keepfast/resume/*,src/keepfast/settings/*,src/keepfast/mcp/*,src/keepfast/app/resume.py,src/keepfast/app/recall.py,src/keepfast/app/deliver.py,$\
src/keepfast/app/model_notes.py,src/keepfast/app/state_document.py,src/keepfast/state/brief_parts.py

bench: install
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q src/keepfast
	$(BIN)/python -m bench

# Time and memory at the limit of capture.max_files: 200,000 files, some minutes and 2 GB of disk.
bench-large: install
	$(BIN)/python -m bench.large

campaign: install
	$(BIN)/python -m pytest --campaign -p no:xdist -s -m "campaign or not campaign" tests/faults tests/workspace tests/store tests/app \
		tests/runner tests/hook tests/mcp tests/web tests/secrets tests/agents tests/model tests/shell tests/state tests/fsutil

# Each check of who gets in, what leaks and what wedges, taken out once: its tests must notice.
mutants: install
	$(BIN)/python tools/mutants.py

# EVAL=DIR: recorded sessions; without it the small made-up ones in the tree.
EVAL ?= tests/data/transcripts

eval: install
	@mkdir -p build
	$(BIN)/python tools/briefs/measure.py $(EVAL) --refit --plot build/eval.svg

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
