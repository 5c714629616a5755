"""All secrets in shown text are masked, and nothing else is."""

from __future__ import annotations

import io
import json
import logging
import os

import pytest

from keras_extensions.listeners.progress import run_log
from reports.page import write_report
from reports.run_files import read_run_folder
from tasks.cli import main
from tests.support.config_files import TINY, changed, run_command, write
from tests.support.run_folders import make_run, period
from training.run_folder import RunFolder
from utilities.secrets import MASK, is_secret_name, mask, mask_value, shown_line

HUGGING_FACE = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1b"
FORMS = {
    "Hugging Face": HUGGING_FACE,
    "W&B": "wandb_v1_" + "Ab1" * 20,
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_" + "11ABC_" * 8,
    "GitLab": "glpat-" + "x" * 20,
    "OpenAI": "sk-proj-" + "Ab1" * 12,
    "Slack": "xoxb-1234567890-abcdefghij",
    "Amazon": "AKIA" + "ABCD1234EFGH5678",
    "Google": "AIza" + "a1B2c3D" * 5,
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
}


@pytest.fixture
def no_secret_variables(monkeypatch):
    monkeypatch.setattr(os, "environ", {})


@pytest.mark.parametrize("form", FORMS)
def test_known_forms_are_masked_anywhere(form):
    secret = FORMS[form]
    for text in (secret, f"token {secret}, then", f"https://x.y/{secret}/z", f'{{"a": "{secret}"}}'):
        assert secret not in mask(text) and MASK in mask(text), text
    assert mask_value({"name": [secret]}) == {"name": [MASK]}


@pytest.mark.parametrize(
    "text, shown",
    [
        ("WANDB_API_KEY=abc123 python x", "WANDB_API_KEY=*** python x"),
        ("--hub-token abc --seed 3", "--hub-token *** --seed 3"),
        ("password = 'a b c', seed = 3", "password = ***, seed = 3"),
        ("https://me:pa55@host/path", "https://me:***@host/path"),
        ("postgresql://user:p@ss:w@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("--proxy 'user:p@ss:w@proxy.corp:3128'", "--proxy 'user:***@proxy.corp:3128'"),
        (
            "s3://b/o?X-Amz-Credential=AK/2&X-Amz-Signature=ab12&a=1",
            "s3://b/o?X-Amz-Credential=***&X-Amz-Signature=***&a=1",
        ),
        (
            "https://cdn/o?Expires=1&Signature=ab~c&Key-Pair-Id=K2",
            "https://cdn/o?Expires=1&Signature=***&Key-Pair-Id=K2",
        ),
        ("https://h/o?x-goog-signature=ab&token=cd&v=3", "https://h/o?x-goog-signature=***&token=***&v=3"),
        ("WANDB_PASS=abc HF_AUTH=def python x", "WANDB_PASS=*** HF_AUTH=*** python x"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("export AWS_SECRET_ACCESS_KEY=abc/def+g", "export AWS_SECRET_ACCESS_KEY=***"),
    ],
)
def test_secrets_by_name(text, shown, no_secret_variables):
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "step 5/12 | mlm_loss: 5.3223 | nsp_loss: 0.7119 | throughput: 251.7 samples/sec | ETA 0:00:01",
        "totals.tokens=12 and num_tokens = 5, tokenizers==0.22.2",
        "an unknown token: [MASK]",
        "git commit 89566fc0123456789abcdef0123456789abcdef01, sha256 " + "0" * 64,
        "git@github.com:owner/name.git and https://host:8080/x",
        "ssh://git@github.com/owner/name.git https://host:8080/pkg@1.2 mailto:me@example.org me@example.org",
        "bypass=3 --forward-passes 2 https://host/x?page=3&author=me at 12:30 on 3:4@x",
        "/data/Experiments2024/wikipedia/tokenised128 pretrain_base_128_phase1_POD64",
        "--config configs/pretraining/pretrain_base_128_phase1.json --num-epochs 5",
        "optimizer_opts.learning_rate.max_learning_rate = 0.0001",
    ],
)
def test_other_text_is_unchanged(text, no_secret_variables):
    assert mask(text) == text
    assert mask_value(text) == text


def test_names_of_secrets():
    secret = "WANDB_PASS HF_AUTH DB_PWD API_KEY hub_token hubToken a.password client-secret AWS_SECRET_ACCESS_KEY"
    harmless = "tokens tokenizer max_tokens key monkey authors secretary keyboard passes GIT_ASKPASS SSH_AUTH_SOCK"
    assert all(map(is_secret_name, secret.split())) and not any(map(is_secret_name, harmless.split()))


def test_values_of_secret_variables_are_masked(monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "correct horse battery")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    assert mask("login correct horse battery, abc") == "login ***, abc"
    assert mask_value({"a": ["correct horse battery"] * 3, "b": {"c": "x"}}) == {"a": [MASK] * 3, "b": {"c": "x"}}


def test_values_in_the_form_of_a_key_are_masked_in_configs_only(no_secret_variables):
    """W&B's older keys have the format of a commit, which a log may show."""
    key = "0123456789abcdef0123456789abcdef01234567"
    assert mask_value({"entity_name": key}) == {"entity_name": MASK}
    assert mask_value({"api_key": "x", "n": 3, "none": None, "api_keys": 5}) == {
        "api_key": MASK, "n": 3, "none": None, "api_keys": 5,
    }  # fmt: skip
    assert mask(f"commit {key}") == f"commit {key}"
    description = {"environment": {"git_commit": key, "cpu": key}}
    assert mask_value(description) == {"environment": {"git_commit": key, "cpu": MASK}}


def test_message_is_one_printable_line():
    assert shown_line(f"a\nb \x07 {HUGGING_FACE} é") == "a b \\x07 *** é"


def test_logs_and_tracebacks_contain_no_secret(tmp_path):
    console = io.StringIO()
    with run_log(tmp_path / "train.log", stream=console):
        logging.getLogger("x").warning("reading %s", f"https://me:{HUGGING_FACE}@host")
        try:
            raise RuntimeError(f"refused: {HUGGING_FACE}")
        except RuntimeError:
            logging.getLogger("x").exception("failed")
    for text in (console.getvalue(), (tmp_path / "train.log").read_text()):
        assert HUGGING_FACE not in text and text.count(MASK) >= 2 and "Traceback" in text


def test_folders_whose_names_are_not_utf_8_are_shown(tmp_path, monkeypatch):
    """A log of the next command, and a report of the folder in which the program was started."""
    folder = "/home/m" + os.fsdecode(b"\xfc") + "ller"
    monkeypatch.setattr(os, "getcwd", lambda: folder)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's, whose reports between processes are UTF-8
    with run_log(tmp_path / "train.log", stream=io.StringIO()):
        logging.getLogger("x").warning("next: %s", folder)
    assert "next: /home/m?ller" in (tmp_path / "train.log").read_text(encoding="utf-8")
    run = RunFolder.create(str(tmp_path), "run").path
    assert "/home/m?ller" in write_report(run).read_text(encoding="utf-8")


def test_plans_and_errors_contain_no_secret(tmp_path, capsys):
    path = write(tmp_path, changed(TINY, {"save_ckpt_path": HUGGING_FACE, "output_dir": HUGGING_FACE}))
    assert main("pretraining", ["--config", str(path), "--plan"]) == 0
    assert run_command("pretraining", ["--config", str(path), "--seed", HUGGING_FACE]) == 2
    assert run_command("pretraining", ["--config", str(path), f"--no-such-{HUGGING_FACE}", "--debug"]) == 2
    shown = capsys.readouterr()
    assert HUGGING_FACE not in shown.out + shown.err
    assert MASK in shown.out and shown.err.count(MASK) >= 2


def test_reports_contain_no_secret(tmp_path):
    folder = make_run(
        tmp_path / "run",
        [{**period(10), "metrics": {f"{HUGGING_FACE}_loss": 1.0}}],
        resolved_config={
            "config": {"name": HUGGING_FACE, "hub_token": "plain words", "nested": {"password": "p4ss"}},
            "origins": {"name": HUGGING_FACE},
            "derived": {"command": f"run --api-key {HUGGING_FACE}"},
        },
        environment={"command": f"HF_TOKEN={HUGGING_FACE} run", "api_key": "plain words"},
        dataset={"url": "https://me:p4ss@host/data"},
        checkpoints=[{"path": f"x/{HUGGING_FACE}"}],
        scores={HUGGING_FACE: 0.5},
    )
    begin = {"event": "begin", "step": 0, "command": "python x --data https://t0k@host", "folder": "/x"}
    variables = {"TF_TOKEN_app_terraform_io": "plain words", "TF_XLA_FLAGS": "--tf_xla_x"}  # as earlier versions wrote
    (folder / "history.jsonl").write_text(json.dumps({**begin, "variables": variables}) + "\n")
    page = write_report(folder).read_text(encoding="utf-8")
    assert "https://***@host" in page and "TF_XLA_FLAGS=--tf_xla_x" in page and "TF_TOKEN" not in page
    for secret in (HUGGING_FACE, "plain words", "p4ss"):
        assert secret not in page
    assert "p4ss" not in json.dumps(read_run_folder(folder).config)
