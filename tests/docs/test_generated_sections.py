"""docs/generated_sections.py: the picture says what the coordinator's table says, and the committed pages are fresh."""

import re

import pytest

from coordinator.core.plans.plan import Phase
from coordinator.core.plans.transitions import TRANSITIONS, Transition, Trigger
from docs import folders, generated_sections

ARROW = re.compile(r"    (\S+) --> (\S+?)(?:: (.*))?")


def arrows(picture):
    body = picture.splitlines()[2:-1]
    found = [ARROW.fullmatch(line) for line in body]
    assert all(found), body
    return [match.groups() for match in found]


def test_committed_pages_are_fresh():
    for path, fresh in generated_sections.pages().items():
        assert path.read_text() == fresh, f"{path.name} is stale: run `make docs`"


def test_every_transition_is_drawn_once():
    drawn = [arrow for arrow in arrows(generated_sections.diagram(TRANSITIONS)) if "[*]" not in arrow]
    assert sorted(drawn) == sorted((row.source, row.target, row.trigger) for row in TRANSITIONS)


def test_plans_begin_registered_and_end_where_nothing_follows():
    drawn = arrows(generated_sections.diagram(TRANSITIONS))
    assert [target for source, target, _ in drawn if source == "[*]"] == [Phase.REGISTERED]
    assert {source for source, target, _ in drawn if target == "[*]"} == {
        Phase.COMMITTED,
        Phase.CANCELLED,
        Phase.DROPPED,
    }


def test_labels_are_what_mermaid_reads():
    # Its grammar ends a label at ':' and ';'.
    assert all(re.fullmatch(r"[a-z]+", row.trigger) for row in TRANSITIONS)


def test_table_joins_arrows_that_mean_the_same():
    rows = [
        Transition(Phase.REGISTERED, Trigger.CANCEL, Phase.CANCELLED, "why"),
        Transition(Phase.ASSIGNED, Trigger.CANCEL, Phase.CANCELLED, "why"),
        Transition(Phase.SYNCING, Trigger.CANCEL, Phase.CANCELLED, "another why"),
    ]
    assert generated_sections.table(rows).splitlines()[2:] == [
        "| cancel | REGISTERED, ASSIGNED | CANCELLED | why |",
        "| cancel | SYNCING | CANCELLED | another why |",
    ]


def page(name, content):
    return f"above\n<!-- from code: {name} (`make docs`) -->\n{content}<!-- end of {name} -->\nbelow\n"


def test_insert_replaces_what_is_between_and_nothing_else():
    once = generated_sections.insert(page("x", "old\n"), "x", "new")
    assert once == page("x", "\nnew\n\n")
    assert generated_sections.insert(once, "x", "new") == once


@pytest.mark.parametrize("text", ["", page("y", ""), page("x", "") * 2, "<!-- end of x -->\n" + page("x", "")])
def test_insert_wants_its_markers_exactly_once(text):
    with pytest.raises(ValueError, match="exactly one section"):
        generated_sections.insert(text, "x", "new")


def test_every_folder_says_what_it_is_for():
    assert [package for package in folders.packages() if "." not in folders.purpose(package)] == []


def test_an_arrow_that_follows_from_others_is_not_drawn():
    assert folders.reduced({("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")}) == [("a", "b"), ("b", "c"), ("d", "c")]


@pytest.fixture
def stale(tmp_path, monkeypatch):
    monkeypatch.setattr(
        generated_sections, "SECTIONS", {("reference/protocol.md", "phases"): generated_sections.phases}
    )
    path = tmp_path / "reference" / "protocol.md"
    path.parent.mkdir()
    path.write_text(page("phases", "stateDiagram of yesterday\n"))
    return path


def test_check_refuses_a_stale_page_and_leaves_it(stale):
    before = stale.read_text()
    with pytest.raises(SystemExit, match=r"docs/reference/protocol\.md is stale: run `make docs`"):
        generated_sections.main(["--check"], stale.parents[1])
    assert stale.read_text() == before


def test_writing_makes_it_fresh(stale):
    generated_sections.main([], stale.parents[1])
    generated_sections.main(["--check"], stale.parents[1])
    assert generated_sections.phases() in stale.read_text()


def test_a_page_without_markers_is_named(tmp_path):
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "protocol.md").write_text("nothing here\n")
    with pytest.raises(SystemExit, match=r"docs/reference/protocol\.md: exactly one section"):
        generated_sections.main([], tmp_path)
