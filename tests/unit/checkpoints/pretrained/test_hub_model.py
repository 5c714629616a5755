"""Models given by name are fetched from a server like huggingface.co, taken from the cache, or refused at once."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from checkpoints.pretrained import hub_model as hub
from checkpoints.pretrained.hub_model import files_to_fetch
from checkpoints.pretrained.naming import is_model_name
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.sentence_transformers import embedding_prompt, embedding_settings
from tasks.named_models import check_named
from tests import ROOT
from tests.support.checkpoint_writers import pytorch_bin, safetensors
from tests.support.hf_models import hugging_face, write_vocabulary
from tests.support.runs import write_json
from utilities.errors import UserError

COMMIT = "c0ffee" + "0" * 34
FETCHED = ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"]
EMBEDS = {  # files of sentence-transformers, which say how the model embeds
    "modules.json": [{"path": "", "type": "st.Transformer"}, {"path": "1_Pooling", "type": "st.Pooling"}],
    "sentence_bert_config.json": {"max_seq_length": 12},
    "config_sentence_transformers.json": {"prompts": {"q": "ask: "}, "default_prompt_name": "q"},
    "1_Pooling/config.json": {"pooling_mode_cls_token": True},
}
FETCH = """
import os, sys
from utilities.errors import UserError
from checkpoints.pretrained import hub_model as hub
hub.TIMEOUT = float(sys.argv[1])
for name in sys.argv[2:]:
    try:
        folder = hub.fetch(name, "bert_model_name")
        print(*sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    except UserError as error:
        print("error:", error)
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """A server with the few answers that fetching a model needs."""

    folder: Path
    fetched: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        status, content, headers = self.answer()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_HEAD()

    def answer(self) -> tuple[int, bytes, dict[str, str]]:
        if self.path.startswith("/api/models/someone/some-bert"):
            paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
            files = [{"rfilename": str(path.relative_to(self.folder))} for path in paths]
            content = json.dumps({"id": "someone/some-bert", "sha": COMMIT, "siblings": files}).encode()
            return 200, content, {"Content-Type": "application/json"}
        if self.path.startswith("/someone/some-bert/resolve/"):
            name = self.path.split("/", 5)[5]
            content = (self.folder / name).read_bytes()
            if self.command == "GET":
                self.fetched.append(name)
            return 200, content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return 404, b"{}", {"X-Error-Code": "RepoNotFound"}


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    fetched: list[str] = []
    handler = type("Served", (Hub,), {"folder": folder, "fetched": fetched})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fetched
    finally:
        server.shutdown()
        server.server_close()


def fetch_by_name(endpoint: str, home: Path, *names: str, timeout: float = hub.TIMEOUT) -> list[str]:
    """Return for each name the fetched files, or the error."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-c", FETCH, str(timeout), *names]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-len(names) :]


def test_a_model_is_fetched_once_and_then_taken_from_the_cache(tmp_path):
    source = hugging_face("squad")
    folder = safetensors(source, tmp_path / "model")
    pytorch_bin(source, folder)
    write_vocabulary(folder, 120)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not fetched")
    with served(folder) as (endpoint, fetched):
        files, error = fetch_by_name(endpoint, tmp_path, "someone/some-bert", "someone/other")
    assert files.split() == sorted(fetched) == FETCHED
    assert error.startswith("error: bert_model_name: someone/other is neither a local folder nor a readable model")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        started, endpoint = time.monotonic(), f"http://127.0.0.1:{silent.getsockname()[1]}"
        files, error = fetch_by_name(endpoint, tmp_path, "someone/some-bert", "someone/other", timeout=1.0)
    assert files.split() == FETCHED
    assert error.startswith("error: bert_model_name: someone/other is not a local folder and cannot be fetched")
    assert time.monotonic() - started + hub.TIMEOUT < 90


def test_a_model_of_sentence_transformers_is_fetched_with_its_pooling_and_prompts(tmp_path):
    folder = safetensors(hugging_face("pretraining"), tmp_path / "model")
    for name, content in {**EMBEDS, "onnx/config.json": {}, "2_Dense/model.safetensors": {}}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, content)
    with served(folder) as (endpoint, fetched):
        (files,) = fetch_by_name(endpoint, tmp_path, "someone/some-bert")
    assert files.split() == sorted(fetched) == sorted(["config.json", "model.safetensors", *EMBEDS])
    (snapshot,) = tmp_path.glob("hub/models--*/snapshots/*")
    start = open_pretrained(str(snapshot), "bert_model_name")
    assert (embedding_settings(start), embedding_prompt(start)) == (("cls", False, 12), ("ask: ", True))


def test_a_download_that_failed_is_not_taken_for_the_model(tmp_path, monkeypatch):
    """The library returns what is in the cache, here the config and a link to no weights, which come at the end."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "weights")
    siblings = [SimpleNamespace(rfilename=name) for name in ("config.json", "model.safetensors")]

    def download(name: str, local_files_only: bool = False, **_: object) -> str:
        if not local_files_only:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: SimpleNamespace(siblings=siblings))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(UserError, match=r"someone/bert .*cannot be fetched .*No space left on device"):
        hub.fetch("someone/bert", "bert_model_name")
    (tmp_path / "weights").touch()
    assert hub.fetch("someone/bert", "bert_model_name") == tmp_path


@pytest.mark.parametrize("name", ["my--bert", "bert-base-uncased.", "someone/bert.git"])
def test_names_that_the_hub_does_not_permit(name):
    with pytest.raises(UserError, match="neither a local folder nor a readable model"):
        hub.fetch(name, "bert_model_name")


def test_a_model_is_opened_by_name(tmp_path, monkeypatch):
    folder = safetensors(hugging_face("squad"), tmp_path / "model")
    monkeypatch.setattr(hub, "fetch", lambda name, key: folder)
    start = open_pretrained("someone/some-bert", "bert_model_name")
    assert start.origin == "someone/some-bert of huggingface.co"
    assert len(start.weights) == 39


@pytest.mark.parametrize(
    "name, valid",
    [("bert-base-uncased", True), ("someone/some.bert_2", True), ("./model", False), ("/data/model", False),
     ("a/b/c", False), ("runs/mine/", False), ("", False), ("~/x", False)],
)  # fmt: skip
def test_model_names(name, valid):
    assert is_model_name(name) is valid


def test_a_missing_path_is_refused_without_the_network():
    for key, path in (("bert_model_name", "./nowhere"), ("pretrained_ckpt_path", "bert-base-uncased")):
        with pytest.raises(UserError, match=f"{key}: there is no folder or file"):
            open_pretrained(path, key)
    with pytest.raises(UserError, match=r"^--checkpoint: the path is empty; name a folder or file"):
        check_named("", "--checkpoint", None)


def test_of_several_formats_one_is_fetched():
    both = ["config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"]
    assert files_to_fetch(both) == ["model.safetensors"]
    parts = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"]
    assert files_to_fetch([*parts, "tf_model.h5"]) == parts
    assert files_to_fetch(["flax_model.msgpack"]) == []
