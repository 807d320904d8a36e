"""Every command line on a page is one that its program takes: its own parser reads it, and nothing is run."""

import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

from coordinator.ctl import cli as elasticctl
from dl2_scheduler import cli as dl2
from elastic_ps.launch import cli as elasticrun
from k8s import ctl as elasticctl_kube
from tests.docs.shown_commands import PAGES, ShownCommand, commands
from tests.paths import ROOT

CTL = get_command(elasticctl.app)
CTL_KUBE = get_command(elasticctl_kube.app)
RUN = get_command(elasticrun.app)
DL2 = get_command(dl2.app)
MAKEFILE = (ROOT / "Makefile").read_text()

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def read(command, shown: ShownCommand):
    """Have a program's own parser read a command line, down to the innermost command."""
    context, name, words = None, shown.program, list(shown.words)
    while words:
        context = command.make_context(name, words, parent=context)
        if not hasattr(command, "resolve_command"):
            return
        words = [*context._protected_args, *context.args]
        if words:
            name, command, words = command.resolve_command(context, words)
    if shown.whole:
        command.make_context(name, words, parent=context)


def problem(command, shown: ShownCommand) -> str:
    """What the program says to a command line; "": it takes it. Sentences and patterns may leave values out."""
    try:
        read(command, shown)
    except typer.Exit:  # --help
        return ""
    except typer.BadParameter as error:
        return "" if shown.pattern or (not shown.whole and lacks_something(error)) else error.format_message()
    except typer.exceptions.TyperException as error:
        named = not shown.whole and error.format_message().endswith("requires an argument.")
        return "" if named else error.format_message()
    return ""


def lacks_something(error) -> bool:
    return type(error).__name__ == "MissingParameter"


def unusable(page, program, command_of):
    """Command lines of a program on a page that it does not take, each with what it says."""
    shown = [each for each in commands(page, program) if "COMMAND" not in each.words]
    return [(str(each), said) for each in shown if (said := problem(command_of(each), each))]


@every_page
def test_elasticrun_takes_its_command_lines(page):
    assert unusable(page, "elasticrun", lambda _: RUN) == []


@every_page
def test_elasticctl_takes_its_command_lines(page):
    def command(shown):
        if "--kube" not in shown.words:
            return CTL
        shown.words.remove("--kube")  # as elasticctl does
        return CTL_KUBE

    assert unusable(page, "elasticctl", command) == []


@pytest.mark.slow
@every_page
def test_dl2_takes_its_command_lines(page):
    assert unusable(page, "dl2", lambda _: DL2) == []


@every_page
def test_a_job_is_not_asked_for_by_the_name_of_its_script(page):
    """`elasticrun train.py` without --name starts a job train-3f2a."""
    unnamed = [shown for shown in commands(page, "elasticrun") if "--name" not in shown.words]
    scripts = {Path(word).stem for shown in unnamed for word in shown.words if word.endswith(".py")}
    asked = {word for shown in commands(page, "elasticctl") for word in shown.words[1:2]}
    named = {word for shown in commands(page, "elasticrun") if shown not in unnamed for word in shown.words}
    assert scripts & asked <= named


@pytest.mark.parametrize(
    ("program", "line", "said"),
    [
        (RUN, "elasticrun --workerz 2 train.py", "No such option: --workerz"),
        (RUN, "elasticrun --workers two train.py", "'two' is no integer"),
        (CTL, "elasticctl scala digits", "No such command 'scala'"),
        (CTL, "elasticctl status digits s0", "unexpected extra argument"),
        (CTL, "elasticctl evict", "Missing argument"),
    ],
)
def test_a_line_that_its_program_does_not_take_is_found(program, line, said):
    name, *words = line.split()
    assert said in problem(program, ShownCommand(name, words, whole=True, pattern=False))


@every_page
def test_make_targets_and_variables_exist(page):
    targets = re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.M)
    variables = re.findall(r"\$\(([A-Z]+)\)", MAKEFILE)
    for shown in commands(page, "make"):
        names = [word for word in shown.words if "=" not in word]
        benchmarks = {f"bench-{path.stem}" for path in (ROOT / "benchmarks").glob("*.py")}
        assert set(names) <= {*targets, *benchmarks}, shown
        assert {word.partition("=")[0] for word in shown.words if "=" in word} <= set(variables), shown


def parsers(text: str) -> list[str]:
    """Return the project's modules from which this source takes a parser of options."""
    return re.findall(r"^from ((?:benchmarks|tests|examples)\.[\w.]+) import [^\n]*_parser\b", text, re.M)


@every_page
def test_python_modules_and_their_options_exist(page):
    for program in ("python", "python3.11"):
        for shown in commands(page, program):
            if shown.words[0] != "-m" or shown.words[1] in ("http.server", "venv", "pytest", "pip"):
                continue
            place = ROOT / shown.words[1].replace(".", "/")
            sources = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else sorted(place.glob("*.py"))
            assert sources, shown
            text = "".join(path.read_text() for path in sources)
            text += "".join(
                (ROOT / module.replace(".", "/")).with_suffix(".py").read_text() for module in parsers(text)
            )
            given = {word for word in shown.words if word.startswith("--")} - {"--help"}
            assert [option for option in sorted(given) if f'"{option}"' not in text] == [], shown


@every_page
def test_files_on_command_lines_exist(page):
    roots = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}
    for program in ("elasticrun", "elasticctl", "dl2", "kubectl", "helm", "python"):
        for shown in commands(page, program):
            paths = [word for word in shown.words if "/" in word and word.split("/")[0] in roots]
            assert [path for path in paths if not (ROOT / path).exists()] == [], shown


@every_page
def test_names_on_kubernetes_command_lines_exist(page):
    sources = [*(ROOT / "k8s").rglob("*.yaml"), *(ROOT / "k8s").rglob("*.py"), ROOT / "Makefile"]
    ours = "".join(path.read_text() for path in sources)
    values = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text())
    kinds = {"elasticjob", "elasticjobs", "ej"}
    for shown in [*commands(page, "kubectl"), *commands(page, "helm")]:
        assert [name for name in re.findall(r"(?<![\w/.-])dl2-[a-z-]+", str(shown)) if name not in ours] == [], shown
        assert set(re.findall(r"(?<![\w./-])(elasticjob[a-z]*|ej)(?=[ /.]|$)", str(shown))) <= kinds, shown
        for given in re.findall(r"--set (\w+)\.(\w+)=", str(shown)):
            assert given[1] in values[given[0]], shown
