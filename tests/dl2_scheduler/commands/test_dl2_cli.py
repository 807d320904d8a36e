"""The command line `dl2`: traces and simulations."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.commands.common import new_table, show
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.single_process import alone
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.trace import read_trace, write_trace
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(300)  # the first to learn compiles


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trace() -> Path:
    path = Path("trace.jsonl")
    write_trace(path, generate(Pattern.UNIFORM, 3, 1, {"dssm": 1, "resnext-110": 1}))
    return path


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


def test_generated_as_by_the_library() -> None:
    line = "trace generate --pattern poisson --jobs 9 --seed 7 --rate 4 --slot 600 --mix dssm=3,wlm=1 -o a.jsonl"
    status, output = invoke(f"{line} --epochs-spread 0.2 --estimate-error 0.1")
    made = generate(
        Pattern.POISSON,
        9,
        7,
        {"dssm": 3.0, "wlm": 1.0},
        slot_seconds=600.0,
        rate=4.0,
        epochs_spread=0.2,
        estimate_error=0.1,
    )
    assert (status, output) == (0, f"a.jsonl: 9 jobs within {(made[-1].arrival - made[0].arrival) / 3600:.1f} h\n")
    assert read_trace(Path("a.jsonl")) == made


def test_the_line_of_the_docs_twice() -> None:
    for name in ("a", "b"):
        assert invoke(f"trace generate --pattern google --jobs 60 --seed 7 -o {name}.jsonl")[0] == 0
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()


def test_converted_and_told_how() -> None:
    Path("w.csv").write_text("name,time,application,num_replicas,batch_size\nb,9,ncf,1,5\na,3,bert,2,5\n")
    status, output = invoke("trace convert --from pollux w.csv -o a.jsonl --jobs 1")
    assert status == 0
    assert "rule: workers: num_replicas; each takes 2 cpu and 1 gpu" in output
    assert output.endswith("a.jsonl: 1 job within 0.0 h\n")
    assert [job.id for job in read_trace(Path("a.jsonl"))] == ["a"]


def test_what_is_left_out_is_told() -> None:
    Path("j.csv").write_text("x,i,u,Terminated,10,100\ny,i,u,Terminated,10,100\n")
    Path("t.csv").write_text("x,worker,1,Terminated,20,90,600,1,50,T4\ny,ps,1,Terminated,20,90,600,1,,\n")
    status, output = invoke("trace convert --from pai j.csv t.csv -o a.jsonl")
    assert (status, "left out: 1 with no workers\n" in output) == (0, True)


def test_shown(trace: Path) -> None:
    status, output = invoke("trace show trace.jsonl")
    lines = output.splitlines()
    assert (status, lines[0]) == (0, "trace.jsonl: 3 jobs within 0.3 h, 1.71 jobs a slot of 1200 s")
    assert lines[-1].split() == ["resnext-110", "1", "1,500", "1,500", "1,500", "390", "2cpu,4gpu", "2cpu", "0"]
    status, output = invoke("trace show trace.jsonl --json")
    shown = json.loads(output)
    assert (shown["jobs"], [row["jobs"] for row in shown["models"]]) == (3, [2, 1])


def test_simulated(trace: Path) -> None:
    status, output = invoke("simulate --policy drf --trace trace.jsonl --cluster 8x8cpu,8gpu")
    lines = output.splitlines()
    assert (status, lines[0]) == (0, "drf on trace.jsonl: 3 jobs, 8 nodes, slots of 1200 s")
    assert lines[-1].startswith("makespan ")
    status, output = invoke("simulate --policy drf --trace trace.jsonl --cluster 8x8cpu,8gpu --json")
    document = json.loads(output)
    mean = sum(job["jct_slots"] for job in document["jobs"]) / 3
    assert document["numbers"]["jct_slots.mean"] == pytest.approx(mean)
    assert f"completion time, slots  {mean:.2f}" in " ".join(lines).replace("   ", "  ")


def test_slots_are_kept_in_memory_only_to_be_written(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl2_scheduler.commands.simulation.simulate.Recording", lambda _: pytest.fail("it keeps all"))
    status, output = invoke("simulate --policy drf --trace trace.jsonl --cluster 8x8cpu,8gpu")
    assert status == 0, output


@pytest.mark.slow
def test_speeds_of_ones_own(trace: Path) -> None:
    rows = [f"{model},{count},{count},{100 * count}" for model in ("dssm", "resnext-110") for count in (1, 16)]
    Path("speeds.csv").write_text("\n".join(["model,servers,workers,samples_per_second", *rows]))
    line = "simulate --policy fifo --trace trace.jsonl --json --cluster 40x8cpu,8gpu --start-cost 0"
    slow, own = (json.loads(invoke(line + more)[1])["jobs"] for more in ("", " --speeds speeds.csv"))
    first = read_trace(trace)[0]
    seconds = first.epochs * first.samples_per_epoch / 1600
    assert own[0]["finish_seconds"] == pytest.approx(seconds)
    assert slow[0]["finish_seconds"] != own[0]["finish_seconds"]


def test_placement() -> None:
    """Spread over both nodes, the small job leaves none whole for the large one's worker."""
    small = Job(1, 0.0, "dssm", 9000.0, 349.0, {"cpu": 2}, {"cpu": 2}, 1, 1)
    large = replace(small, id=2, worker={"cpu": 8})
    write_trace(Path("two.jsonl"), [small, large])
    line = "simulate --policy fifo --trace two.jsonl --json --cluster 2x8cpu --placement"
    spread, pack = (json.loads(invoke(f"{line} {rule}")[1])["jobs"] for rule in ("spread", "pack"))
    assert spread[0] == pack[0]
    assert spread[1]["jct_slots"] > pack[1]["jct_slots"] + 1


def test_costs(trace: Path) -> None:
    line = "simulate --policy drf --trace trace.jsonl --json --cluster 4x8cpu,8gpu"
    free, dear = (json.loads(invoke(line + more)[1]) for more in ("", " --start-cost 300 --change-cost 60"))
    assert dear["numbers"]["makespan_slots"] > free["numbers"]["makespan_slots"]


@pytest.fixture(scope="module")
def bootstrapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    line = f"bootstrap --out {folder} --clusters 4x8cpu,8gpu --jobs 4 --episodes 1 --warm-up 0 --epochs 1"
    status, output = invoke(line)
    assert (status, f"dl2:{folder}" in output) == (0, True), output
    return folder


@pytest.mark.slow
def test_learning_in_place_and_on(bootstrapped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(bootstrapped, run)
    assert invoke(f"learn --from {run} --resume --updates 1") == (
        2, f"dl2: {run} holds no learning: begin it without --resume\n",
    )  # fmt: skip
    status, output = invoke(f"learn --from {run} --updates 1")
    assert (status, "1 updates." in output, f"dl2:{run}" in output) == (0, True, True), output
    status, output = invoke(f"learn --from {run}")
    assert (status, "holds some learning: go on with it by --resume" in output) == (2, True), output
    status, output = invoke(f"learn --from {run} --resume --updates 2")
    assert (status, "2 updates." in output) == (0, True), output
    assert len((run / "learning.csv").read_text().splitlines()) == 3
    assert "may still improve" not in output  # as many as were asked for
    status, output = invoke(f"learn --from {run} --resume --minutes 0")
    assert (status, "2 updates of about 65 in" in output) == (0, True), output
    assert json.loads((run / "settings.json").read_text())["settings"]["shortage"]["updates"] == 2


def test_learning_from_a_run_of_another_learner(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"settings": {"learner": "taught"}}')  # of learn-chic, interrupted
    for more in ("", " --published"):
        status, output = invoke(f"learn --from {tmp_path}{more}")
        assert (status, f"{tmp_path}" in output, "KeyError" in output) == (2, True, False), output


@pytest.mark.slow
def test_learning_from_random_weights(bootstrapped: Path, tmp_path: Path) -> None:
    run = tmp_path / "random"
    line = f"bootstrap --out {run} --clusters 4x8cpu,8gpu --jobs 4"
    assert invoke(f"{line} --untrained") == (
        2, "dl2: --untrained is for --network paper, without --teacher and --history\n",
    )  # fmt: skip
    status, output = invoke(f"{line} --network paper --untrained")
    assert (status, "teacher" in output) == (0, False), output
    status, output = invoke(f"learn --from {bootstrapped} --published --out {tmp_path / 'out'}")
    assert (status, "--published is for" in output) == (2, True), output
    status, output = invoke(f"learn --from {run} --published --updates 2")
    assert (status, "It is the best that was judged" in output) == (0, True), output
    assert json.loads((run / "settings.json").read_text())["settings"]["online"]["guided"] is True


@pytest.mark.slow
def test_the_best_is_compared_with_the_best_before(tmp_path: Path) -> None:
    """Where an earlier policy was the best, and nothing is left to do, there is no gain."""
    run = tmp_path / "run"
    line = "--clusters 4x8cpu,8gpu --jobs 4 --network paper --untrained"
    assert invoke(f"bootstrap --out {run} {line}")[0] == 0
    assert invoke(f"learn --from {run} --updates 1")[0] == 0
    folder = RunFolder(run)
    folder.save_checkpoint({**folder.checkpoint(), "best": [0.5]})
    status, output = invoke(f"learn --from {run} --resume --updates 1")
    assert (status, bool(re.search(r"(\d+\.\d\d) +\1 +\+0\.0%", output))) == (0, True), output
    assert "best that was judged, on others, where it takes 0.50" in " ".join(output.split()), output


@pytest.mark.slow
def test_learning_beside_the_run_that_it_is_from(bootstrapped: Path, tmp_path: Path) -> None:
    before = (bootstrapped / "policy.npz").read_bytes()
    out = tmp_path / "out"
    assert invoke(f"learn --from {bootstrapped} --out {out} --updates 1")[0] == 0
    assert json.loads((out / "settings.json").read_text())["settings"]["from"] == str(bootstrapped)
    assert (bootstrapped / "policy.npz").read_bytes() == before
    status, output = invoke(f"learn --from {bootstrapped} --out {out} --updates 1")
    assert (status, f"{out} holds a run" in output) == (2, True), output
    status, output = invoke(f"learn --from {out} --resume --out {tmp_path / 'more'}")
    assert (status, "leave out --out" in output) == (2, True), output


@pytest.mark.slow
def test_a_folder_in_which_a_process_learns_is_refused(bootstrapped: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with alone(out / "lock", "held by this test already"):
        for line in ("bootstrap --clusters 4x8cpu,8gpu --jobs 4", f"learn --from {bootstrapped}"):
            status, output = invoke(f"{line} --out {out}")
            assert (status, f"learns in {out}: wait until it ends" in output) == (1, True), output
    assert [path.name for path in out.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("learn --from none", "dl2: no run in none: "),
        ("learn", "Missing option '--from'"),
        ("trace generate", "Missing option"),
        ("trace generate -o a.jsonl --pattern bursts", "--pattern"),
        ("trace generate -o a.jsonl --jobs 0", "dl2: 0 jobs: give at least 1"),
        ("trace generate -o a.jsonl --mix gpt=1", "dl2: unknown model gpt"),
        ("trace generate -o a.jsonl --mix dssm", "dl2: --mix: 'dssm': give weights as in resnet-50=2,dssm=1"),
        ("trace generate -o no/a.jsonl", "dl2: no/a.jsonl: cannot be written: No such file"),
        ("trace convert --from philly none -o a.jsonl", "dl2: none: "),
        ("trace show none", "dl2: none: "),
        ("trace show trace.jsonl --slot 0", "dl2: --slot is 0.0"),
        ("simulate --policy nope --trace trace.jsonl", "dl2: unknown policy nope: give one of drf"),
        ("simulate --policy drf --trace none", "dl2: none: "),
        ("simulate --policy drf --trace trace.jsonl --cluster 2x", "dl2: '' in '2x'"),
        ("simulate --policy drf --trace trace.jsonl --cluster 9x1cpu", "dl2: trace.jsonl:1: job 1: a worker takes"),
        ("simulate --policy drf --trace trace.jsonl --speeds none", "dl2: none: "),
        ("simulate --policy drf --trace trace.jsonl --slot nan", "'--slot': nan: give a number"),
        ("simulate --policy drf --trace trace.jsonl --placement high", "dl2: unknown placement high"),
        ("simulate --policy drf --trace trace.jsonl --start-cost -1", "--start-cost"),
    ],
)
@pytest.mark.slow
def test_what_is_refused_in_one_line(trace: Path, line: str, problem: str) -> None:
    status, output = invoke(line)
    assert (status, problem in output) == (2, True), output
    assert not problem.startswith("dl2: ") or output.count("\n") == 1
    assert not Path("a.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": "gpt"}, "dl2: trace.jsonl:2: job 2: unknown model gpt"),
        ({"max_workers": 300}, "dl2: trace.jsonl:2: max_workers is 300: give 1 to 256"),
    ],
)
def test_a_job_that_cannot_be_simulated(trace: Path, change: dict[str, object], problem: str) -> None:
    lines = trace.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    trace.write_text("\n".join(lines))
    status, output = invoke("simulate --policy drf --trace trace.jsonl")
    assert (status, problem in output) == (2, True), output


def test_jobs_that_can_use_more_than_the_shipped_grid(trace: Path) -> None:
    trace.write_text(trace.read_text().replace('"max_workers": 16', '"max_workers": 40'))
    assert invoke("simulate --policy published-optimus --trace trace.jsonl")[0] == 0


def test_interrupted(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dl2_scheduler.commands.simulation.simulate.record", stop)
    assert invoke("simulate --policy drf --trace trace.jsonl")[0] == 130


@pytest.mark.parametrize("line", ["", "trace", "trace --help", "simulate --help"])
def test_help(line: str) -> None:
    assert "Usage: " in invoke(line)[1]


def test_the_docs_have_every_option_and_no_other() -> None:
    text = (ROOT / "docs" / "reference" / "traces.md").read_text()
    top = get_command(app).commands  # type: ignore[attr-defined]
    commands = [top["simulate"], *top["trace"].commands.values()]
    options = {option for each in commands for parameter in each.params for option in parameter.opts}
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(re.findall(r"dl2 .*(?:\n {8,}.*)*", text))))
    assert {option for option in options if option.startswith("--")} - named == {"--out"}
    assert named <= options


def test_a_path_that_is_wider_than_its_column_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/" + "x" * 250
    table = new_table(name=False, reason=False)
    table.add_row("a", path)
    show(table)
    assert "".join(capsys.readouterr().out.split()).endswith(path)


def ran(trace: Path, how: str) -> tuple[int, str]:
    """Status and stderr of a command whose stdout is a file or closed, as the shell has it."""
    words = shlex.join(
        [sys.executable, "-c", "from dl2_scheduler.cli import main; main()", "trace", "show", str(trace)]
    )
    done = subprocess.run(["sh", "-c", f"{words} {how}"], stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_output_that_cannot_be_written_is_told_in_one_line(trace: Path) -> None:
    assert ran(trace, "> /dev/full") == (1, "dl2: reading or writing failed: No space left on device\n")


@pytest.mark.slow
def test_a_closed_stdout_is_nothing_to_die_of(trace: Path) -> None:
    assert ran(trace, ">&-") == (0, "")
