# BERT pre-training. `make` lists what can be made; needs GNU make and Python 3.10 to 3.13; for IPUs Python 3.8.

PYTHON ?= $(if $(IPU),$(or $(PYTHON38),python3.8),python3)
VENV ?= .venv
CUDA ?=
IPU ?=
WORKERS ?= 2
PYTEST_ARGS ?=
BENCHMARK_ARGS ?=
FUZZ_ARGS ?=
CRASH_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv dev test all-tests long-test without chain-test lint types benchmark gpu-bundle gpu-visit packed-training learning-curve learning-race speedrun squad-features preprocessing input-pipeline crash-test checkpoint-cost fuzz-test fine-tuning fine-tuning-speed precision recomputation prediction clean
.PHONY: demo  # room: from_text
.PHONY: pipeline  # room: pipeline
.PHONY: ipu-test ipu-emulation published-program  # room: graphcore
.PHONY: sparse-layer sparse-pareto  # room: sparsity

PY := $(VENV)/bin/python
PIP = $(PY) -m pip install --quiet --disable-pip-version-check --use-pep517
PYTEST = $(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
REQUIREMENTS := requirements$(if $(CUDA),-cuda)$(if $(IPU),-ipu).txt
RUNTIME := $(VENV)/.installed-$(basename $(REQUIREMENTS))
DEV := $(VENV)/.installed-requirements-dev
BENCH := $(VENV)/.installed-requirements-bench

PYTHONS := Python $(if $(IPU),3.8,3.10 to 3.13)
OLDEST := $(if $(IPU),8,10)
NEWEST := $(if $(IPU),8,13)

help:  ## this list
	@echo "make TARGET [PYTHON=python3.12] [VENV=folder] [CUDA=1] [IPU=folder]"
	@echo
	@sed -n 's/ *# room: .*//; s/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done
	@echo
	@echo "real data: the folder that BERT_REAL_DATA names, or ../shared/data; PyTorch: requirements-bench.txt, which those targets install"

venv: $(RUNTIME)  ## make .venv and install what training needs; with CUDA=1 TensorFlow for NVIDIA GPUs, with IPU=/path/to/sdk the Poplar SDK's

dev: $(DEV)  ## as venv, with what tests and checks need in addition

demo: $(RUNTIME)  ## run_from_text.py with two minutes and the documentation that Python carries  # room: from_text
	@$(PY) -m tasks.demo  # room: from_text

test: $(DEV)  ## what to run before each commit: all tests but slow ones (2 to 5 minutes on 2 cores); PYTEST_ARGS="-k name" for some
	@$(PYTEST) -m 'not slow and not long' $(PYTEST_ARGS)

all-tests: $(DEV)  ## the whole test suite, also tests that train several models or start processes (some 15 minutes on 2 cores)
	@$(PYTEST) $(PYTEST_ARGS)

long-test: $(DEV)  ## further cases of the suite's slowest tests: four processes, each precision with each way to execute (4 minutes)
	@$(PYTEST) -m long $(PYTEST_ARGS)

without: $(DEV)  ## the tree without a room of pyproject.toml's [tool.rooms], in a copy: lint, types, tests; ROOM=doctor, PYTEST_ARGS="tests/unit" for some
	@$(PY) -m tests.support.without_room $(or $(ROOM),'') --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

chain-test: $(DEV)  ## every task by its commands: a dump, records, pre-training, fine-tuning, export (a minute)
	@$(PY) -m pytest -m long tests/integration/test_chain.py $(PYTEST_ARGS)

lint: $(DEV)  ## style, formatting, and the rules of which folder may import which
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports

types: $(DEV)  ## types of the whole product
	@$(PY) -m mypy

benchmark: $(BENCH)  ## speed and memory of pre-training compared with Hugging Face's, TensorFlow and PyTorch in float32 and bfloat16 (an hour; needs an idle machine); needs PyTorch
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.speed $(BENCHMARK_ARGS)

gpu-bundle: $(RUNTIME)  ## pack the environment for a GPU machine without a network (ten minutes): guides/gpu.md; BENCHMARK_ARGS="--architecture 80"
	@$(PY) -m benchmarks.gpu_bundle $(BENCHMARK_ARGS)

gpu-visit: $(BENCH)  ## measure all there is on a GPU and write it to visit.txt (a quarter of an hour): guides/gpu.md
	@$(PY) -m benchmarks.gpu_visit $(BENCHMARK_ARGS)

packed-training: $(RUNTIME)  ## real tokens per second on packs compared with padded sequences (needs an idle machine)
	@$(PY) -m benchmarks.packed_training $(BENCHMARK_ARGS)

fine-tuning: $(BENCH)  ## a run's or released weights fine-tuned, compared with random weights and Hugging Face's Trainer (long); needs PyTorch, real data (GLUE, SQuAD), and BENCHMARK_ARGS="--checkpoint runs/mine"
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.fine_tuning $(BENCHMARK_ARGS)

pipeline: $(RUNTIME)  ## do pipeline stages overlap: two stages on a thread each, compared with the same in sequence  # room: pipeline
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.pipeline $(BENCHMARK_ARGS)  # room: pipeline

learning-curve: $(BENCH)  ## loss, step by step, compared with Hugging Face's in PyTorch (a minute); needs PyTorch; uses real data, Wikipedia, where there is any
	@$(PY) -m benchmarks.learning pytorch $(BENCHMARK_ARGS)

learning-race: $(BENCH)  ## held-out loss over time, compared with PyTorch (hours; needs an idle machine); needs PyTorch; BENCHMARK_ARGS="--data-32 data/speedrun/32 --data-128 data/speedrun/128 --output runs/race"
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.learning_race $(BENCHMARK_ARGS)

speedrun: $(RUNTIME)  ## the fastest recipe of guides/small.md from text to a held-out loss (needs an idle machine): DATA=folder of WikiExtractor's files
	@test -n "$(DATA)" || { echo "error: name the folder of WikiExtractor's files: make speedrun DATA=/path" >&2; exit 1; }
	@$(PY) -m data_utils.text --wikiextractor "$(DATA)" --vocab-size 8192 --duplicate-factor 2 --validation-fraction 0.01 --output data/speedrun/128
	@$(PY) -m data_utils.text --sentences data/speedrun/128/corpus --vocab-file data/speedrun/128/vocab.txt --duplicate-factor 1 \
	    --max-seq-length 32 --max-predictions 5 --no-next-sentence --validation-fraction 0.01 --output data/speedrun/32
	@$(PY) run_pretraining.py --config configs/pretraining/pretrain_tiny_32_speedrun.json --dataset-dir data/speedrun/32 \
	    --do-validation false --output-dir runs/speedrun --name 32
	@$(PY) run_pretraining.py --config configs/pretraining/pretrain_tiny_128_speedrun.json --dataset-dir data/speedrun/128 \
	    --pretrained-ckpt-path runs/speedrun/32 --output-dir runs/speedrun --name 128

squad-features: $(RUNTIME)  ## features of SQuAD compared with Hugging Face's fast tokenizer and its slow one (5 minutes); needs real data: SQuAD
	@$(PY) -m benchmarks.squad_features $(BENCHMARK_ARGS)

preprocessing: $(RUNTIME)  ## data preparation compared with an imitation of the classic script, with one worker and two (15 minutes; needs an idle machine); needs real data: Wikipedia; BENCHMARK_ARGS="--only scaling --megabytes 62"
	@$(PY) -m benchmarks.preprocessing $(BENCHMARK_ARGS)

input-pipeline: $(RUNTIME)  ## samples that the input pipeline delivers compared with those that BERT-base takes (5 minutes)
	@$(PY) -m benchmarks.input_pipeline $(BENCHMARK_ARGS)

crash-test: $(DEV)  ## training killed at 25 random moments and data preparation at 8, and resumed (10 minutes on 2 cores); CRASH_ARGS="--seed 7"
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m tests.crash $(CRASH_ARGS)

checkpoint-cost: $(RUNTIME)  ## what a checkpoint every ten steps costs BERT-mini; needs an idle machine
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.checkpointing $(BENCHMARK_ARGS)

fuzz-test: $(DEV)  ## thousands of mutated configs, records and checkpoints (a minute or more); FUZZ_ARGS="--seed 7"
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m tests.fuzz $(FUZZ_ARGS)

fine-tuning-speed: $(BENCH)  ## fine-tuning speed on SQuAD and SST-2, packed, compared with peers that pad to the longest of a batch (long; needs an idle machine); needs PyTorch, real data: SQuAD, GLUE
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.speed --tasks squad sst2 --sizes mini base --warm-up 6 $(BENCHMARK_ARGS)

prediction: $(BENCH)  ## time to classify short texts, compared with PyTorch and ONNX Runtime (half an hour; needs an idle machine); needs PyTorch, real data: GLUE
	@$(PY) -m benchmarks.prediction $(BENCHMARK_ARGS)

precision: $(RUNTIME)  ## loss of BERT-tiny in float16, with stochastic rounding and rounded to nearest, compared with float32 (5 minutes); uses real data, Wikipedia, where there is any
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.learning precision $(BENCHMARK_ARGS)

recomputation: $(RUNTIME)  ## activation memory and time with recomputation and without (10 minutes; needs an idle machine)
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.recomputation $(BENCHMARK_ARGS)

sparse-layer: $(RUNTIME)  ## a block-sparse layer compared with a dense one, by block size (a minute; needs an idle machine)  # room: sparsity
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.sparse_layer $(BENCHMARK_ARGS)  # room: sparsity

sparse-pareto: $(RUNTIME)  ## dense, static, SET and RigL at equal training FLOPs (20 minutes on 2 cores); needs real data: Wikipedia; BENCHMARK_ARGS="--work runs/pareto --picture pareto.png"  # room: sparsity
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -m benchmarks.sparse_pareto $(BENCHMARK_ARGS)  # room: sparsity

clean:  ## remove .venv, caches and what the demo made; other runs stay
	test ! -e $(VENV)/pyvenv.cfg || rm -rf $(VENV)
	rm -rf runs/demo runs/demo.txt  # room: from_text
	rm -rf .ruff_cache .mypy_cache .import_linter_cache .pytest_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# An environment is made once, and installed into again only when a requirements file changes.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null \
	    || { echo "error: there is no $(PYTHON); name a $(PYTHONS): make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, $(OLDEST)) <= v <= (3, $(NEWEST)) else "error: $(PYTHON) is Python %d.%d; $(PYTHONS) is needed: make PYTHON=python3.$(NEWEST) $(MAKECMDGOALS)" % v)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	    || { echo "error: $(PYTHON) cannot make virtual environments, its module venv or ensurepip is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test ! -e $(VENV) \
	    || { echo "error: $(VENV) is there already and make did not make it, or was stopped while it did; remove it, or name another folder with VENV=" >&2; exit 1; }
	@echo "making $(VENV) with `$(PYTHON) --version`"
	@$(PYTHON) -m venv $(VENV) \
	    || { echo "error: $(PYTHON) -m venv $(VENV) failed, see above; is the folder writable, the disk full?" >&2; exit 1; }
	@touch $@

include ipu.mk  # room: graphcore

$(VENV)/.installed-%: %.txt requirements.txt constraints.txt | $(VENV)/.made
	@echo "installing $< (1 to 2 minutes)"
	@$(PIP) --requirement $< \
	    || { echo "error: pip could not install $<, see above; it needs the network (or PIP_INDEX_URL), 3 GB of disk, and a 64-bit Python" >&2; exit 1; }
	@touch $@
