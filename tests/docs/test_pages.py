"""What the pages name exists: options, links, files, modules, signatures. Command lines: test_shown_commands."""

import importlib
import inspect
import itertools
import re

import pytest
from typer.main import get_command

import elastic_ps
from coordinator.core.plans.plan import Phase
from coordinator.ctl import cli as elasticctl
from dl2_scheduler import cli as dl2
from elastic_ps.launch import cli as elasticrun
from tests.docs.shown_commands import PAGES, inline
from tests.paths import ROOT

CTL = get_command(elasticctl.app).commands
RUN = get_command(elasticrun.app)
DL2 = get_command(dl2.app).commands
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def options(command):
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def heading_anchor(line):
    title = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
    return title.replace(" ", "-")


@every_page
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        if anchor:
            headings = [line for line in path.read_text().splitlines() if line.startswith("#")]
            assert anchor in map(heading_anchor, headings), link


def test_every_launcher_option_has_its_place():
    text = (ROOT / "docs" / "reference" / "elasticrun.md").read_text()
    assert [option for option in sorted(options(RUN) - {"--help"}) if option not in text] == []


@every_page
def test_options_in_prose_exist(page):
    """An option that stands alone in backticks belongs to a command of ours."""
    known = options(RUN).union(*map(options, CTL.values()), *map(options, DL2.values())) | {"--all", "--check"}
    alone = {text.split()[0] for text in inline(page) if text.startswith("--")}
    assert alone <= known


@every_page
def test_files_exist(page):
    """What looks like a path of the repository is one."""
    roots = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}
    for text in inline(page):
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", text) and "/" in text and text.split("/")[0] in roots:
            assert (ROOT / text).exists() or (ROOT / f"{text}.py").exists(), text


@every_page
def test_python_examples_are_python(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        assert compile(block, page.name, "exec").co_names, f"an example of nothing:\n{block}"


def shown(function):
    """A signature as the API page writes it: defaults that are no plain values as `...`."""
    parts = []
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        text = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        if parameter.default is not parameter.empty:
            text += f"={'...' if callable(parameter.default) else repr(parameter.default)}"
        parts.append(text)
    return f"`{function.__name__}({', '.join(parts)})`"


@pytest.mark.parametrize("name", elastic_ps.__all__)
def test_api_page_has_every_signature(name):
    assert shown(getattr(elastic_ps, name)) in (ROOT / "docs" / "reference" / "api.md").read_text()


@pytest.mark.mxnet
@pytest.mark.parametrize("name", ["ElasticDataLoader", "track_auxiliary"])
def test_api_page_has_every_signature_of_the_adapter(name):
    adapter = importlib.import_module("elastic_ps.mxnet")
    assert name in adapter.__all__
    assert shown(getattr(adapter, name)) in (ROOT / "docs" / "reference" / "api.md").read_text()


@pytest.mark.parametrize("name", ["DataLoader", "Optimizer", "report"])
def test_torch_page_has_every_signature_of_the_adapter(name):
    adapter = pytest.importorskip("elastic_ps.torch")
    assert shown(getattr(adapter, name)) in (ROOT / "docs" / "reference" / "torch.md").read_text()


def test_a_script_of_pytorch_changes_three_lines_and_imports_one():
    lines = (ROOT / "examples" / "torch" / "digits.py").read_text().splitlines()
    assert sum(line.endswith("# elastic") for line in lines[9:]) == 5  # the chief alone evaluates


def test_an_elastic_script_changes_at_most_six_lines():
    lines = (ROOT / "examples" / "digits.py").read_text().splitlines()
    assert 0 < sum(line.endswith("# elastic") for line in lines) <= 6
    api = (ROOT / "docs" / "reference" / "api.md").read_text()
    difference = re.search(r"^```diff\n(.*?)^```", api, re.M | re.S)
    assert difference
    assert 0 < sum(line.startswith("+") for line in difference[1].splitlines()) <= 7  # one of them only indents


def test_pages_that_the_code_names_exist():
    folders = ("benchmarks", "coordinator", "dl2_scheduler", "elastic_ps", "examples", "k8s", "protos", "tests")
    named = {
        (str(path.relative_to(ROOT)), page)
        for folder in folders
        for kind in ("py", "proto", "yaml", "sh", "Dockerfile")
        for path in (ROOT / folder).rglob(f"*.{kind}")
        for page in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", path.read_text())
    }
    assert len(named) > 20
    assert [(path, page) for path, page in sorted(named) if not (ROOT / page).exists()] == []


def test_the_picture_of_a_plan_has_its_phases():
    picture = (ROOT / "docs" / "pictures" / "plan.svg").read_text()
    well = set(Phase) - {Phase.CANCELLED, Phase.DROPPED}
    assert [phase for phase in sorted(well) if f">{phase}<" not in picture] == []


def test_the_picture_of_the_house_has_every_folder_of_the_runtime():
    picture = (ROOT / "docs" / "pictures" / "house.svg").read_text()
    folders = {path.parent.name for path in (ROOT / "elastic_ps").glob("*/__init__.py")} - {"testing"}
    assert [folder for folder in sorted(folders) if f">{folder}<" not in picture] == []


def test_the_site_has_every_page_in_its_menu():
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    menu = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(menu) == sorted(pages | {"changelog.md"})


@every_page
def test_lists_and_tables_stand_after_an_empty_line(page):
    """The site's Markdown takes them for text elsewhere; a forge's does not."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    begins = re.compile(r"([-*]|\d+\.) |\|")
    for before, line in itertools.pairwise(text.splitlines()):
        if begins.match(line) and before and not before.startswith(("    ", "  ")):
            assert begins.match(before), line


def test_changelog_keeps_its_format():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.M)[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= kinds
