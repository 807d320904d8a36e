"""Policies that others have written: loaded by MODULE:CLASS, refused with a sentence."""

from pathlib import Path

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.policies.registry import make_live_policy, make_policy
from tests.dl2_scheduler.clusters import SPEEDS, job, nodes, snapshot
from tests.paths import ROOT

EXAMPLE = "examples.fewest_epochs_first:FewestEpochsFirst"
MODULE = """
class Broken:
    def __init__(self):
        raise RuntimeError("no luck")

class NoPolicy:
    pass
"""


@pytest.mark.parametrize("make", [lambda: make_policy(EXAMPLE, SPEEDS), lambda: make_live_policy(EXAMPLE)])
def test_the_documented_example_decides(make):
    long, short = job(1, epochs=50, max_workers=2, max_servers=2), job(2, epochs=3, max_workers=2, max_servers=2)
    now = snapshot([long, short], nodes({"cpu": 6}))
    room = FreeResources(now)
    grants = make().allocate(now, room).grants
    assert [(grants[number].workers, grants[number].servers) for number in (1, 2)] == [(1, 1), (2, 2)]
    assert grants[2].reason == "place 1 in the queue"


def test_a_module_of_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend("")  # undoes what make_own adds
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies_of_mine.py").write_text(MODULE)
    with pytest.raises(BadInput, match="policies_of_mine:Broken cannot be made: RuntimeError: no luck"):
        make_policy("policies_of_mine:Broken", SPEEDS)
    with pytest.raises(BadInput, match=r"makes a NoPolicy, which has no allocate\(snapshot, room\)"):
        make_policy("policies_of_mine:NoPolicy", SPEEDS)
    with pytest.raises(BadInput, match="cannot be made: AttributeError"):
        make_policy("policies_of_mine:Nobody", SPEEDS)


@pytest.mark.parametrize("name", ["nowhere_at_all:Policy", "examples.nothing:Policy"])
def test_no_such_module(name: str):
    with pytest.raises(BadInput, match=f"policy {name} cannot be made: ModuleNotFoundError"):
        make_live_policy(name)


@pytest.mark.parametrize("name", ["a-b:C", "dfr", ":C", "a:", "a:b c"])
def test_what_is_no_place_of_code_is_an_unknown_name(name: str):
    with pytest.raises(BadInput, match="unknown policy"):
        make_policy(name, SPEEDS)


def test_the_page_shows_the_example_as_it_is():
    page = (ROOT / "docs/guides/write-a-policy.md").read_text().splitlines()
    code = (ROOT / "examples/fewest_epochs_first.py").read_text().split('"""\n\n', 1)[1].splitlines()
    shown = [line.removeprefix("    ") for line in page if line.startswith("    ")]
    assert "\n".join(filter(None, code)) in "\n".join(filter(None, shown))
