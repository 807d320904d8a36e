"""Every command of `elasticrun`, `elasticctl` and `dl2`, with damaged files and extreme values: a sentence, no more.

The commands and their options are taken from the programs themselves: a command that is new fails
`test_every_command_is_here` until it has a line below, with a file for each of its options that takes one.

`INPUT_EXAMPLES=5000 INPUT_FRESH=1` in front of pytest tries as many, and others each time.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from coordinator.ctl.cli import app as elasticctl
from dl2_scheduler.cli import app as dl2
from dl2_scheduler.live.history import History
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.trace import write_trace
from elastic_ps.launch.cli import app as elasticrun
from elastic_ps.system.option_checks import Careful, CarefulGroup

EXAMPLES = int(os.environ.get("INPUT_EXAMPLES", "120"))
FRESH = bool(os.environ.get("INPUT_FRESH"))
SECONDS = 10.0

PROGRAMS: dict[str, Any] = {"dl2": dl2, "elasticctl": elasticctl, "elasticrun": elasticrun}

LIVE = "--folder cluster"  # which nobody serves
LINES = {
    # What would go on for ever, or learn for minutes, has something wrong in it that nothing below mends.
    "dl2 simulate": "--policy drf --trace {trace} --speeds {speeds}",
    "dl2 evaluate": "--policies drf --traces {trace} --speeds {speeds}",
    "dl2 bootstrap": "--out run --teacher nobody --speeds {speeds}",
    "dl2 figure": "99 --out figures --speeds {speeds}",
    "dl2 fit": "--out table.csv --folder {cluster}",
    "dl2 learn": "--from {run} --out learnt --updates 1",
    "dl2 learn-placement": "--model {nothing} --out learnt",
    "dl2 learn-agents": "--sequences 0 --out learnt",
    "dl2 learn-chic": "--pool table --speeds {speeds} --rate 0 --out learnt",
    "dl2 serve": "--slots 1x1 --policy nobody --isolation none --folder served",
    "dl2 submit": f"{{document}} {LIVE}",
    "dl2 jobs": LIVE,
    "dl2 status": f"a {LIVE}",
    "dl2 why": f"a {LIVE}",
    "dl2 what-if": f"--policy drf {LIVE}",
    "dl2 top": LIVE,
    "dl2 logs": f"a {LIVE}",
    "dl2 hold": f"a {LIVE}",
    "dl2 release": f"a {LIVE}",
    "dl2 scale": f"a {LIVE}",
    "dl2 stop": f"a {LIVE}",
    "dl2 policy": LIVE,
    "dl2 policy use": f"drf {LIVE}",
    "dl2 policy end-shadow": LIVE,
    "dl2 trace generate": "-o made.jsonl --jobs 3",
    "dl2 trace convert": "--from pollux {pollux} -o made.jsonl",
    "dl2 trace show": "{trace}",
    "elasticctl jobs": "--all",
    "elasticctl status": "nobody",
    "elasticctl scale": "nobody --workers 2",
    "elasticctl drain": "nobody w0",
    "elasticctl evict": "nobody w0",
    "elasticctl plans": "nobody",
    "elasticctl cancel": "nobody",
    "elasticctl watch": "nobody",
    "elasticctl checkpoint": "nobody",
    "elasticctl export": "-o made.safetensors --from {nothing}",
    "elasticctl stop": "nobody",
    "elasticctl ledger": "nobody",
    "elasticctl audit": "nobody",
    "elasticrun": "--restore {nothing} --wrap-server no-such-program {script}",
}
TAKES_LONG = {"host"}  # a name that nobody knows is looked up in the network

VALUES = [
    *("", " ", "-1", "0", "1", "nan", "inf", "-inf", "1e-9", "1e300", "-1e300", "1e15", "9" * 30, "9" * 5000),
    *("x", "é", "\x1b]0;evil\x07", "\u202e", "\udcff", "%s{}{0}", "a,b=c", "a=1e308", "x" * 200_000, "[" * 3000),
    *("/dev/zero", "/dev/full", "/proc/self/mem", "pipe", ".", "..", "/", "none/none", "none\nnone"),
    *(
        "dl2:none",
        "dl2:.",
        "dl2:/dev/zero",
        "os:getcwd",
        "json:none",
        "1x1",
        "1e9x8cpu",
        "99999999x8cpu",
        "127.0.0.1:1",
    ),
]

WHOLE = {
    "speeds": b"model,servers,workers,samples_per_second\ndssm,1,1,5\ndssm,2,2,9\ndssm,2,1,7\n",
    "pollux": b"name,time,application,num_replicas,batch_size\na,1,bert,2,3\nb,2.5,ncf,1,3\n",
    "document": json.dumps(
        {
            "apiVersion": "dl2.scheduler/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": "a"},
            "spec": {
                "modelType": "a",
                "epochs": 2,
                "workers": {"template": {"spec": {"containers": [{"command": ["python", "a.py"]}]}}},
            },
        }
    ).encode(),
    "script": b"",
    "nothing": b"",
}
NUMBERS = [b"1e400", b"-1", b"NaN", b"1" + b"0" * 400, b'"x"', b"null", b"[]", b"{}", b'"\\ud800"', b"true", b"1e308"]


@dataclass(frozen=True)
class Damage:
    """Of a file's bytes."""

    kind: str
    at: float
    byte: int
    number: bytes

    def of(self, whole: bytes) -> bytes:
        place = int(self.at * max(len(whole) - 1, 0))
        if self.kind == "flip":
            return whole[:place] + bytes([self.byte]) + whole[place + 1 :]
        if self.kind == "number":  # one of its numbers or texts is another, or no number
            found = list(re.finditer(rb'-?\d+(\.\d+)?|"[^"]*"', whole))
            if not found:
                return self.number
            chosen = found[int(self.at * (len(found) - 1))]
            return whole[: chosen.start()] + self.number + whole[chosen.end() :]
        return {
            "truncated": whole[:place],
            "empty": b"",
            "zeros": whole[:place] + bytes(4096),
            "noise": bytes((number * 73 + self.byte) % 256 for number in range(3000)),
            "deep": whole[:place] + b"[" * 100_000,
            "curly": b'{"a":' * 50_000,
            "long": whole[:place] + b"9" * 200_000 + whole[place:],
            "again": whole * 2,
        }[self.kind]


damages = st.builds(
    Damage,
    st.sampled_from(["flip", "number", "truncated", "empty", "zeros", "noise", "deep", "curly", "long", "again"]),
    st.floats(0, 1),
    st.integers(0, 255),
    st.sampled_from(NUMBERS),
)


def commands(program: str) -> Iterator[tuple[str, Any]]:
    """Of a program, with its groups' own."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name, command
            return
        if command.invoke_without_command:
            yield name, command
        for each in command.commands:
            yield from below(f"{name} {each}", command.commands[each])

    yield from below(program, get_command(PROGRAMS[program]))


EVERY = {name: command for program in PROGRAMS for name, command in commands(program)}


def options(name: str) -> list[Any]:
    """Of a command that take a value, or are flags."""
    return [each for each in EVERY[name].params if each.name not in {"help", *TAKES_LONG}]


def test_every_command_is_here() -> None:
    """A new command, or an option that takes a file and that no line has, is to be added above."""
    assert set(EVERY) == set(LINES)
    assert all(isinstance(command, Careful | CarefulGroup) for command in EVERY.values())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a whole file of every kind."""
    folder, before = tmp_path_factory.mktemp("input"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("KUBECONFIG", str(folder / "none"))
        os.mkfifo("pipe")
        write_trace(Path("trace"), generate(Pattern.UNIFORM, 3, 1, {"dssm": 1}))
        for name, content in WHOLE.items():
            Path(name).write_bytes(content)
        Path("history").mkdir()
        History(Path("history/decisions.sqlite")).close()
        yield folder
        os.chdir(before)


def laid(folder: Path, kind: str, damage: Damage | None) -> str:
    """A file of a kind, damaged; its path."""
    if kind == "cluster":
        (folder / "damaged").mkdir(exist_ok=True)
        for old in (folder / "damaged").iterdir():
            old.unlink()
        whole, path = (folder / "history/decisions.sqlite").read_bytes(), folder / "damaged/decisions.sqlite"
        path.write_bytes(damage.of(whole) if damage else whole)
        return "damaged"
    if kind == "run":  # always damaged: a whole one learns
        (folder / "damaged-run").mkdir(exist_ok=True)
        of_run = {"network": "shared", "clusters": ["2x8cpu"], "jobs": 2, "patterns": ["uniform"], "seed": 1}
        told = json.dumps({"settings": of_run}).encode()
        (folder / "damaged-run/settings.json").write_bytes(damage.of(told) if damage else told)
        (folder / "damaged-run/checkpoint.pt").write_bytes(damage.of(bytes(100)) if damage else b"")
        return "damaged-run"
    if damage is None:
        return kind
    (folder / f"damaged-{kind}").write_bytes(damage.of((folder / kind).read_bytes()))
    return f"damaged-{kind}"


def given_to(name: str, words: list[str], option: Any, value: str) -> list[str]:
    """A command's words with one more option, argument or flag."""
    named = next((each for each in option.opts if each.startswith("-")), None)
    if named is None:
        return [*words, value]
    if getattr(option, "is_flag", False):
        return [named, *words]
    return [f"{named}={value}", *words] if named.startswith("--") else [named, value, *words]


def check(name: str, words: list[str]) -> None:
    """Run a command: it ends, soon, with a sentence where it refuses."""
    program = name.split()[0]
    began = time.process_time()  # of this process alone: others may keep the machine busy
    result = CliRunner().invoke(PROGRAMS[program], [*name.split()[1:], *words])
    said = [word[:60] for word in words]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{name} {said}: {result.exception!r}") from result.exception
    assert time.process_time() - began < SECONDS, (name, said)
    assert "Traceback" not in result.output, (name, said)
    if result.exit_code:
        assert result.exit_code in (1, 2, 3, 4, 5), (name, said, result.exit_code)
        lines = result.stderr.splitlines()
        spoken = [line for line in lines if line.startswith(f"{program}: ")]
        assert len(spoken) == 1 or lines[0].startswith("Usage: "), (name, said, result.stderr)
    assert "\x1b" not in result.output, (name, said)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not FRESH,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_input(here: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(LINES)))
    line = LINES[name]
    damage = data.draw(st.none() | damages)
    words = [re.sub(r"\{(\w+)\}", lambda kind: laid(here, kind[1], damage), word) for word in line.split()]
    if damage is None or data.draw(st.booleans()):
        option = data.draw(st.sampled_from(options(name)))
        value = data.draw(st.sampled_from(VALUES))
        words = given_to(name, words, option, value)
    check(name, words)
