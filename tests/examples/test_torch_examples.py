"""The examples of PyTorch on texts, in a job of one worker."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402
from tests.paths import ROOT  # noqa: E402

WORDS = "you may copy and change this work as long as whoever gets it from you may do so too without paying "


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "free").write_text(WORDS * 40)
    (folder / "other").write_text(" ".join(reversed(WORDS.split())) * 40)
    (folder / "same").symlink_to("free")
    return folder


def played(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> dict[str, Any]:
    """What an example has written."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "torch"))
    example = importlib.import_module(name)
    out = folder / "result.json"
    monkeypatch.setattr(sys, "argv", [name, *arguments, "--out", str(out)])
    with lone_job() as (_, servers):
        example.main()
    found: dict[str, Any] = json.loads(out.read_text())
    return {**found, "servers": servers}


@pytest.mark.slow
def test_the_language_model_learns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts: Path) -> None:
    small = ("--epochs", "20", "--width", "32", "--layers", "1", "--texts", str(texts))
    found = played("language_model", monkeypatch, tmp_path, *small)
    assert found["bits_per_letter"] < 5  # of 8 before
    servers = found["servers"]
    assert "s:next.weight" not in servers.exchanges[0]  # tied
    assert servers.factors


@pytest.mark.slow
def test_the_embeddings_learn_by_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts: Path) -> None:
    found = played("embeddings", monkeypatch, tmp_path, "--epochs", "8", "--texts", str(texts))
    assert found["test_accuracy"] > 0.9
    assert 0 < len(found["servers"].rows["s:table.weight"]) < 200


def test_a_machine_without_the_texts_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "torch"))
    licences = importlib.import_module("licences")
    with pytest.raises(SystemExit, match=r"has no licences: .* take other texts by --texts FOLDER"):
        licences.texts(tmp_path)
