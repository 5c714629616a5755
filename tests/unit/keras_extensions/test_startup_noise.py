"""TensorFlow starts silently, and only its known messages are dropped."""

from __future__ import annotations

import os
import subprocess
import sys


def stderr_of(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CPP", "TRANSFORMERS"))}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)
    return result.stderr


def test_start_is_silent() -> None:
    code = (
        "from keras_extensions.backend import tf; tf.constant(1) + 1\n"
        "from transformers import BertConfig, TFBertModel\n"
        "TFBertModel(BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, vocab_size=9))"
    )
    assert stderr_of(code) == ""


def test_other_lines_and_errors_are_shown() -> None:
    code = (
        "import os; from keras_extensions.startup_noise import quiet_loading\n"
        "with quiet_loading():\n"
        "    os.write(2, b'I0 1 port.cc:153] oneDNN custom operations are on. Really.\\n')\n"
        "    os.write(2, b'F0 1 cpu.cc:1] no AVX here\\n')\n"
        "    import sys; print('a line of Python', file=sys.stderr)\n"
        "    raise ImportError('libfoo.so is missing')\n"
    )
    lines = stderr_of(code).splitlines()
    assert lines[:2] == ["F0 1 cpu.cc:1] no AVX here", "a line of Python"]
    assert lines[-1] == "ImportError: libfoo.so is missing"


def test_what_is_said_before_an_abort_is_shown() -> None:
    code = (
        "import os; from keras_extensions.startup_noise import quiet_loading\n"
        "with quiet_loading():\n"
        "    os.write(2, b'F0 1 cpu.cc:1] no AVX here\\n')\n"
        "    os.abort()\n"
    )
    assert stderr_of(code) == "F0 1 cpu.cc:1] no AVX here\n"


def test_log_level_of_the_user_shows_all_lines() -> None:
    code = (
        "import os; from keras_extensions.startup_noise import quiet_loading\n"
        "with quiet_loading(): os.write(2, b'x] oneDNN custom operations are on.\\n')\n"
    )
    assert "oneDNN" in stderr_of(code, TF_CPP_MIN_LOG_LEVEL="0")
