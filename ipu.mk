# What the Makefile has for IPUs: an environment of Python 3.8 with the Poplar SDK's wheels, and their tests.

ipu-test: $(DEV)  ## imports and small runs of the IPU adapter on Python 3.8 and TensorFlow 2.6, without an IPU (3 minutes)
	@$(if $(PYTHON38),$(MAKE) --silent --no-print-directory venv IPU=stock PYTHON=$(PYTHON38) VENV=$(VENV)/ipu, \
	    echo "no Python 3.8 on PATH or in pyenv: the IPU adapter is not tested on TensorFlow 2.6")
	@$(if $(PYTHON38),IPU_PYTHON=$(abspath $(VENV))/ipu/bin/python $(PYTEST) tests/integration/test_graphcore.py $(PYTEST_ARGS))

ipu-emulation: $(DEV)  ## runs on Graphcore's own Python code with emulated IPUs (10 minutes; tests/emulation/README.md); first SOURCES=folder of clones
	@$(if $(SOURCES),$(PY) tests/emulation/make_environment.py --sources $(SOURCES))
	@IPU_EMULATION_ENV=$${IPU_EMULATION_ENV:-$$HOME/.cache/ipu_emulation} $(PYTEST) tests/emulation $(PYTEST_ARGS)

published-program: $(DEV)  ## Graphcore's own BERT beside this one on emulated IPUs, update by update (an hour; tests/emulation/published_program): SOURCES=folder that holds the clone of graphcore/examples; BENCHMARK_ARGS="--only lamb adamw"
	@test -n "$(SOURCES)" || { echo "error: name the folder that holds the clone of graphcore/examples: make published-program SOURCES=/path" >&2; exit 1; }
	@status=0; $(PY) -m tests.emulation.published_program --sources $(SOURCES) $(BENCHMARK_ARGS) || status=1; \
		$(if $(BENCHMARK_ARGS),,$(PY) -m tests.emulation.published_program.their_tests --sources $(SOURCES) || status=1;) exit $$status

# pyenv's shim on PATH may be of no version
PYTHON38 = $(shell for python in python3.8 $${PYENV_ROOT:-~/.pyenv}/versions/3.8.*/bin/python3.8; do \
    $$python -c '' 2>/dev/null && echo $$python && break; done)
CPU = $(shell grep -q AuthenticAMD /proc/cpuinfo && echo amd || echo intel)
WHEELS = $(if $(filter stock,$(IPU)),tensorflow==2.6.5 keras==2.6.0,$(foreach name,tensorflow-2*$(CPU)* keras-2* ipu_tensorflow_addons-2*,$(IPU)/$(name).whl))

$(VENV)/.installed-requirements-ipu: requirements-ipu.txt | $(VENV)/.made
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 8))' \
	    || { echo "error: $(VENV) is of another Python than 3.8; name a folder for it: make venv IPU=$(IPU) VENV=folder" >&2; exit 1; }
	@echo "installing $(notdir $(firstword $(WHEELS))) … and $< (a minute)"
	@$(PIP) --no-deps $(WHEELS) && $(PIP) --no-deps --requirement $< \
	    || { echo "error: pip could not install $(WHEELS) and $<, see above; IPU= names the folder of the SDK with its wheels" >&2; exit 1; }
	@touch $@
