"""TensorFlow and Transformers start without a line on standard error, unless something is wrong."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest


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
    assert stderr_of(code) == []


LINES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795905528.097287   12602 port.cc:153] oneDNN custom operations are on. You may see",
    "E0000 00:00:1736000000.123456     123 cuda_dnn.cc:8310] Unable to register cuDNN factory",
    "2021-05-01 12:00:00.123456: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on.",
]
OTHERS = ["loading TensorFlow, for 10 s", "F0000 00:00:1795905528.1  12602 cpu.cc:1] uses AVX, which is missing", "end"]
PROGRAM = """
import os, sys, time
from keras_extensions.quiet import without_noise
def say(text):
    os.write(2, text.encode())
with without_noise():
    for line in sys.argv[2:]:
        say(line[:7]); time.sleep(0.3 * (line == "end")); say(line[7:] + chr(10))
    if sys.argv[1] == "fails":
        raise SystemExit(f"it fails")
print("done", file=sys.stderr)
"""


def test_only_tensorflows_lines_are_left_out() -> None:
    command = [sys.executable, "-c", PROGRAM]
    given = [line for pair in itertools.zip_longest(LINES, OTHERS) for line in pair if line]
    done = subprocess.run([*command, "", *given], capture_output=True, text=True)
    assert done.stderr.splitlines() == [*OTHERS, "done"]


def test_a_failing_start_shows_all_lines() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "fails", *LINES, *OTHERS], capture_output=True, text=True)
    assert sorted(done.stderr.splitlines()) == sorted([*LINES, *OTHERS, "it fails"])


def test_other_lines_are_passed_on_at_once() -> None:
    code = "import os, time\nfrom keras_extensions.quiet import without_noise\nwith without_noise():\n"
    code += "    os.write(2, b'goes on\\n'); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stderr.readline() == "goes on\n"
    process.kill()
    process.communicate()


def test_without_a_standard_error_it_starts() -> None:
    code = "from keras_extensions.quiet import without_noise\nwith without_noise():\n    print(2)"
    done = subprocess.run(f"'{sys.executable}' -c '{code}' 2>&-", shell=True, capture_output=True, text=True)
    assert done.stdout == "2\n"


STAND_IN = """
import os
os.write(2, b"I0000 00:00:1.1 1 port.cc:1] level " + os.environb[b"TF_CPP_MIN_LOG_LEVEL"] + bytes([10]))
keras = None
"""
LEVEL = {"TF_CPP_MIN_LOG_LEVEL": "0"}


@pytest.mark.parametrize(("variables", "shown"), [({}, []), (LEVEL, ["I0000 00:00:1.1 1 port.cc:1] level 0"])])
def test_log_level_of_the_user_is_kept(variables: dict[str, str], shown: list[str], tmp_path: Path) -> None:
    """Instead of TensorFlow, a module is imported that writes such a line."""
    (tmp_path / "tensorflow.py").write_text(STAND_IN)
    assert stderr_of("import keras_extensions.backend", PYTHONPATH=str(tmp_path), **variables) == shown


def test_too_little_address_space_is_one_line(tmp_path: Path) -> None:
    command = f'ulimit -v 900000; "{sys.executable}" -m tasks.classify --checkpoint "{tmp_path}" text'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: TensorFlow cannot be loaded")]
    assert result.returncode == 2 and len(errors) == 1 and "Traceback" not in result.stderr
