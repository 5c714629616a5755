"""ARCHITECTURE.md: its example runs, and all links of the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.fine_tuning_runs import PIECES, write_config, write_pieces
from tests.support.runs import events, read_json

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "guides").glob("*.md"))]


@pytest.mark.slow
def test_the_smallest_task_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    write_pieces(tmp_path / "vocab.txt", PIECES)
    write_config(tmp_path, "my", glue_task="sst2", num_epochs=60, global_batch={"micro_batch_size": 4}, report=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "ARCHITECTURE.md", "exec"), names)
    run = tmp_path / "runs" / "my"
    assert names["result"].scores == read_json(run / "scores.json") == {"accuracy": 1.0}
    assert events(run) == ["begin", "end"]


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*?)(?: <!-- .* -->)?$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if not name.startswith("http"):
            target = document.parent / name if name else document
            assert target.exists() and (not anchor or anchor in anchors(target)), link
