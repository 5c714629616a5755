"""TensorFlow and Transformers start without warnings, except for what TensorFlow says while it is being loaded."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.tensorflow_lines import LOADING


def stderr_of(code: str, **environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CPP", "TRANSFORMERS"))}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True)
    return result.stderr.splitlines()


def test_start_shows_no_warnings() -> None:
    code = (
        "from keras_extensions.backend import tf; tf.constant(1) + 1\n"
        "from transformers import BertConfig, TFBertModel\n"
        "TFBertModel(BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, vocab_size=9))"
    )
    assert [line for line in stderr_of(code) if not any(known in line for known in LOADING)] == []


def test_log_level_of_the_user_is_kept() -> None:
    code = "from keras_extensions.backend import tf; tf.constant(1) + 1"
    lines = stderr_of(code, TF_CPP_MIN_LOG_LEVEL="0")
    assert any("optimized to use available CPU instructions" in line for line in lines)


def test_too_little_address_space_is_one_line() -> None:
    command = f'ulimit -v 900000; "{sys.executable}" -m tasks.classify --checkpoint nowhere text'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: TensorFlow cannot be loaded")]
    assert result.returncode == 2 and len(errors) == 1 and "Traceback" not in result.stderr
