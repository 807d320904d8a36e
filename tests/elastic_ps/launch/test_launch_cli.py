"""The command line of `elasticrun`."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from coordinator import options
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, NotNow
from elastic_ps.launch import checks, cli
from elastic_ps.launch.checkpoint_lock import sole_saver
from elastic_ps.launch.commands import JobCommands, JoinSettings, node_environment
from elastic_ps.launch.member_agent import MemberSettings
from elastic_ps.launch.options import JobOptions, JobSettings, MigrationMode, NodesOptions, Script
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.node.settings import NodeSettings
from elastic_ps.system import storage
from elastic_ps.transport.choice import TransportName, TransportSettings


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("token").write_text("00" * 16)
    Path("rules.py").write_text("raise AssertionError('the launcher runs no code of the user')")
    Path("pkg").mkdir()
    for name in ("__init__.py", "train.py"):
        Path("pkg", name).write_text(Path("rules.py").read_text())
    Path("c/9").mkdir(parents=True)
    Path("c/9/manifest.json").touch()
    Path("empty/version-1").mkdir(parents=True)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[JobSettings, JobCommands]]:
    """Jobs that would have been run."""
    taken: list[tuple[JobSettings, JobCommands]] = []

    def run_job(settings: JobSettings, commands: Callable[[JobSettings], JobCommands], *_: Any) -> LauncherOutcome:
        taken.append((settings, commands(settings)))
        return LauncherOutcome(3, "failed")

    monkeypatch.setattr(cli, "run_job", run_job)
    return taken


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, result.output


def test_nodes_are_run_through_other_programs(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    assert invoke("--wrap-worker", "nice -n '5'", "train.py")[0] == 3
    ((_, commands),) = jobs
    join = JoinSettings("h:1", Path("token"), "h")
    assert commands.node(Role.WORKER, join, "n") == ["nice", "-n", "5", sys.executable, "train.py"]
    assert commands.node(Role.SERVER, join, "n")[:4] == [sys.executable, "-P", "-m", "elastic_ps.server"]
    for wrong, words in (
        ("'", "No closing quotation: give words"),
        ("no-such-program -x", "no program no-such-program"),
    ):
        status, output = invoke("--wrap-server", wrong, "train.py")
        assert status == 2
        assert words in output


def test_a_job_with_the_scripts_own_options(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    line = "--workers 4 --servers 3 --name toy --seed 7 --grace 5 --identity run-1"
    line += " train.py --workers 9 -m -- x --help"
    assert invoke(*line.split()) == (3, "")
    ((settings, _),) = jobs
    assert settings == JobSettings(
        Script("train.py", ("--workers", "9", "-m", "--", "x", "--help")),
        JobOptions(workers=4, servers=3, name="toy", seed=7, identity="run-1"),
        NodesOptions(grace=5.0),
    )


def test_each_run_of_a_job_has_an_identity_of_its_own(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    for _ in range(2):
        assert invoke("--name", "toy", "train.py")[0] == 3
    lines = [commands.coordinator(Path("/jobs/toy"), Path("token"), 0, 1) for _, commands in jobs]
    first, second = (line[line.index("--identity") + 1] for line in lines)
    assert first != second
    assert jobs[0][1].coordinator(Path("/jobs/toy"), Path("token"), 7, 2).count(first) == 1, (
        "its coordinator's restarts keep it"
    )


def test_a_module(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    assert invoke("-m", "pkg.train", "--epochs", "3")[0] == 3
    ((settings, commands),) = jobs
    assert settings.job.name.startswith("pkg-")
    join = JoinSettings("h:1", Path("token"), "h", TransportSettings(TransportName.TCP, 2))
    assert commands.node(Role.WORKER, join, "n") == [sys.executable, "-m", "pkg.train", "--epochs", "3"]


def test_a_module_in_folders_without_init_files(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    Path("outer/inner").mkdir(parents=True)
    Path("outer/inner/train.py").touch()
    assert invoke("-m", "outer.inner.train")[0] == 3


def test_the_command_lines_of_coordinator_and_servers(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    options = "--checkpoint-interval 30 --restore c/9 --migration pause --block-bytes 128 --lease 20 --replicas 1"
    options += " --optimizer-module rules --checkpoint memory://jobs/toy --host localhost --identity toy-1"
    assert invoke("--name", "toy", *options.split(), "train.py")[0] == 3
    ((_, commands),) = jobs
    given = commands.coordinator(Path("/jobs/toy"), Path("/jobs/toy/token"), 0, 2)
    assert given == [
        *(sys.executable, "-P", "-m", "coordinator", "--launched", "--job", "toy", "--folder", "/jobs/toy"),
        *("--token-file", "/jobs/toy/token", "--port", "0", "--term", "2"),
        *("--workers", "1", "--servers", "1", "--replicas", "1"),
        *("--block-bytes", "128", "--migration", "pause", "--checkpoint", "memory://jobs/toy"),
        *("--checkpoint-interval", "30.0", "--restore", f"{Path.cwd()}/c/9", "--identity", "toy-1", "--lease", "20.0"),
        *("--host", "localhost", "--join-timeout", "60.0"),
    ]
    join = JoinSettings("h:1", Path("token"), "h", TransportSettings(TransportName.TCP, 2))
    assert commands.node(Role.SERVER, join, "n") == [
        *(sys.executable, "-P", "-m", "elastic_ps.server", "--coordinator", "h:1", "--token-file", "token"),
        *("--host", "h"),
        *("--transport", "tcp", "--tcp-sockets", "2", "--nonce", "n", "--optimizer-module", "rules"),
    ]


def test_the_coordinator_has_every_option_that_is_marked_for_it() -> None:
    job = JobOptions(name="toy", seed=7, block_bytes=128, migration=MigrationMode.PAUSE, checkpoint_interval=30.0)
    job = replace(job, workers=3, servers=2, restore="c/9", identity="run-1", lease=20.0, replicas=1)
    nodes = NodesOptions(host="localhost", join_timeout=5.0)
    _, _, _, _, *given = JobCommands(JobSettings(Script("train.py"), job, nodes)).coordinator(
        Path("toy"), Path("token"), 0, 1
    )
    taken = options.parser(None).parse_args(given)
    kept = options.settings(taken)
    assert (taken.workers, taken.servers, taken.seed, taken.block_bytes, taken.host) == (3, 2, 7, 128, "localhost")
    assert (kept.name, kept.lease, kept.join_timeout, kept.migration) == ("toy", 20.0, 5.0, "pause")
    assert kept.replicas == 1
    assert kept.checkpoint_interval == 30.0
    assert (kept.checkpoint, kept.restore) == (f"{Path.cwd()}/toy/checkpoints", f"{Path.cwd()}/c/9")


def test_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[MemberSettings] = []

    def run_member(settings: MemberSettings, command: Any) -> int:
        taken.append(settings)
        assert command("n")[1:] == ["train.py", "--lr", "1"]
        return 143

    monkeypatch.setattr(cli, "run_member", run_member)
    where = "--coordinator 10.0.0.1:7000 --token-file token --host 10.0.0.2"
    assert invoke("--role", "worker", *where.split(), "train.py", "--lr", "1") == (143, "")
    join = JoinSettings("10.0.0.1:7000", Path("token"), "10.0.0.2")
    assert taken == [MemberSettings(Role.WORKER, join)]
    assert invoke("--role", "worker", *where.split(), "--nonce-prefix", "pod-1", "train.py", "--lr", "1") == (143, "")
    assert taken[1:] == [MemberSettings(Role.WORKER, join, nonce_prefix="pod-1")]


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose own name is one of its loopback addresses, by /etc/hosts."""
    resolve = socket.getaddrinfo

    def resolved(host: str | None, *others: Any, **options: Any) -> Any:
        return resolve("127.0.1.1" if host == "myhost" else host, *others, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(cli, "run_member", lambda *_: 143)


@pytest.mark.usefixtures("debian")
def test_a_name_that_others_do_not_reach_this_machine_by(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    """Nodes on other machines were refused their connections. A job of one machine trains all the same."""
    told = "--host myhost is 127.0.1.1 here, which no other machine reaches: give this machine's address"
    status, output = invoke("--host", "myhost", "train.py")
    assert (status, output) == (3, f"elasticrun: {told}, where nodes of others are to join this job\n")
    for host in ("localhost", "127.0.0.1"):
        assert invoke("--host", host, "train.py") == (3, "")
    server = ("--role", "server", "--token-file", "token", "--host", "myhost", "--coordinator")
    assert invoke(*server, "192.0.2.1:7000") == (2, f"elasticrun: {told}\n")
    for here in ("myhost:7000", "[::1]:7000"):
        assert invoke(*server, here) == (143, "")


@pytest.mark.usefixtures("debian")
@pytest.mark.parametrize("line", ["--role server", "--role worker --mode all-reduce"])
def test_a_node_of_another_machines_job_says_where_it_is(line: str) -> None:
    """It told the job 127.0.0.1, where others found nobody or themselves, and was expelled."""
    script = ["train.py"] if "worker" in line else []
    node = [*line.split(), "--token-file", "token", "--coordinator"]
    told = "--host 127.0.0.1: no other machine reaches that, and the job's coordinator is on another: give this"
    for away in ("192.0.2.1:7000", "[2001:db8::1]:7000"):
        status, output = invoke(*node, away, *script)
        assert (status, told in output) == (2, True), output
    for here in ("127.0.0.1:7000", "localhost:7000", "nowhere.invalid:7000"):
        assert invoke(*node, here, *script) == (143, "")
    worker = ("--role", "worker", "--token-file", "token", "--coordinator", "192.0.2.1:7000", "train.py")
    assert invoke(*worker) == (143, ""), "it calls others, and nobody calls it"


def test_every_process_of_a_job_finds_its_checkpoints(
    jobs: list[tuple[JobSettings, JobCommands]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that changed its folder, or a node begun in another one, wrote and looked elsewhere."""
    here = Path.cwd()
    monkeypatch.setenv("HOME", str(here))
    for given, meant in (
        (("saved", "./c/9"), (f"{here}/saved", f"{here}/c/9")),
        (("~/saved", f"file://{here}/c/9"), (f"{here}/saved", f"file://{here}/c/9")),
        (("file://saved", "c/9/"), (f"{here}/saved", f"{here}/c/9")),
        (("~no-such-user/saved", "c/9"), (f"{here}/~no-such-user/saved", f"{here}/c/9")),
        (("simplecache::memory://x", "c/9"), ("simplecache::memory://x", f"{here}/c/9")),
    ):
        assert invoke("--checkpoint", given[0], "--restore", given[1], "train.py") == (3, "")
        line = jobs[-1][1].coordinator(Path("/jobs/toy"), Path("token"), 0, 1)
        kept = options.settings(options.parser(None).parse_args(line[4:]))
        assert (kept.checkpoint, kept.restore) == meant


def test_arguments_of_the_script_are_bytes(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    """A name of a file in Latin-1 was refused as not UTF-8."""
    name = os.fsdecode(b"caf\xe9")
    assert invoke("train.py", "--data", name) == (3, "")
    ((settings, _),) = jobs
    assert [os.fsencode(word) for word in settings.script.command[1:]] == [b"train.py", b"--data", b"caf\xe9"]
    assert invoke("--name", name, "train.py")[0] == 2


def test_a_job_without_servers(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    assert invoke(*["--mode", "all-reduce", "--workers", "2", "train.py"]) == (3, "")
    ((settings, commands),) = jobs
    assert settings.job.servers == 0
    line = commands.coordinator(Path("f"), Path("t"), 0, 1)
    assert line[line.index("--servers") + 1] == "0"
    assert options.parser(None).parse_args(line[4:]).servers == 0
    join = JoinSettings("h:1", Path("token"), "h", mode=settings.nodes.mode)
    assert node_environment(join, "n", {})["ELASTIC_MODE"] == "all-reduce"


def test_a_node_finds_its_token_from_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that changed its folder before it joined was told that there is no such file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("00" * 16)
    environment = node_environment(JoinSettings("h:1", Path("token"), "h"), "n", {})
    monkeypatch.chdir("/")
    assert NodeSettings.from_environment(environment).token == bytes(16)


@pytest.mark.parametrize(("line", "strange"), [("sub/train.py", "sub/protos"), ("-m sub.train", "elastic_ps.py")])
def test_what_workers_would_import_in_the_place_of_ours_is_named(line: str, strange: str) -> None:
    """A folder `protos` beside the script ended every worker with an ImportError."""
    Path("sub").mkdir()
    Path("sub/train.py").touch()
    place = Path(strange)
    if place.suffix:
        place.touch()
    else:
        place.mkdir()
        (place / "__init__.py").touch()
    status, output = invoke(*line.split())
    assert (status, f"workers would import {place.absolute()} in the place of a package" in output) == (2, True), output


def test_what_hides_none_of_ours_may_be_beside_the_script(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    Path("coordinator.py").touch()
    Path("other/protos").mkdir(parents=True)
    Path("other/protos/__init__.py").touch()
    assert invoke("train.py") == (3, "")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "name the training script"),
        ("nope.py", "no script 'nope.py' here"),
        ("pkg.train", "a module is run with -m"),
        (".", "'.' is a folder; name a script in it"),
        ("-m train.py", "no module 'train.py' can be found from here; a file is run without -m"),
        (f"{'x' * 300}.py", "xxx.py' here"),
        ("--workers 0 train.py", "--workers"),
        ("--servers 0 train.py", "--servers"),
        ("--workers 100000000000000 train.py", "'--workers': must be at most 65535, not 100000000000000"),
        (
            "--seed 99999999999999999999999 train.py",
            "'--seed': must be at most 18446744073709551615",
        ),
        ("--block-bytes 64000000000000000000000000 train.py", "--block-bytes"),
        ("--max-restarts -1 train.py", "--max-restarts"),
        ("--block-bytes 100 train.py", "--block-bytes 100: must be a multiple of 64"),
        ("--migration never train.py", "--migration"),
        ("--checkpoint-interval 0 train.py", "--checkpoint-interval"),
        ("--replicas 2 train.py", "'--replicas': must be at most 1, not 2"),
        ("--replicas -1 train.py", "'--replicas': must be at least 0, not -1"),
        ("--replicas all train.py", "'--replicas': 'all' is no integer"),
        ("--name a/b train.py", "--name 'a/b'"),
        ("-m pkg.absent", "no module 'pkg.absent' can be found from here"),
        ("-m absent.train", "no module 'absent.train'"),
        ("-m ..pkg", "no module '..pkg'"),
        ("--optimizer-module rules --optimizer-module nomod_x train.py", "--optimizer-module nomod_x: no such module"),
        ("--join-timeout 0 train.py", "--join-timeout 0: must be more than 0 seconds"),
        ("--join-timeout nan train.py", "'--join-timeout': nan: give a number"),
        ("--lease 0 train.py", "--lease"),
        ("--lease inf train.py", "'--lease': inf: give a number"),
        ("--host 999.1.1.1 train.py", "--host 999.1.1.1: "),
        ("--host 192.0.2.1 train.py", "give an address of this machine"),
        ("--host 0.0.0.0 train.py", "--host 0.0.0.0: that is all addresses; give the one that other nodes reach"),
        ("--host :: train.py", "--host ::: "),
        ("--role worker --coordinator h:1 --token-file token --host 0.0.0.0 train.py", "that is all addresses"),
        ("--checkpoint nope:///x train.py", "--checkpoint nope:///x: Protocol not known: nope"),
        (
            "--restore nope:///x train.py",
            "--restore nope:///x: no checkpoint can be read there: nope:///x cannot be used: Protocol not known",
        ),
        ("--restore= train.py", "--restore: an empty URL: give one, or leave the option out (a variable of the"),
        ("--checkpoint= train.py", "--checkpoint: an empty URL: give one"),
        ("--name= train.py", "--name: an empty text: give one, or leave the option out"),
        ("--identity= train.py", "--identity: an empty text: give one"),
        ("--restore /nowhere train.py", "--restore /nowhere: no checkpoint there"),
        ("--identity a/b train.py", "--identity 'a/b': give up to 100 letters, digits"),
        ("--restore empty train.py", "--restore empty: no checkpoint there"),
        ("--role worker --coordinator h:1 --token-file missing train.py", "--token-file missing: cannot read the job"),
        ("--role worker --coordinator h:1 --token-file train.py train.py", "0 bytes, not 16"),
        ("--role server --coordinator h:1 --token-file token --host 192.0.2.1", "--host 192.0.2.1: "),
        ("--role server --coordinator h:² --token-file token", "--coordinator 'h:²': give HOST:PORT"),
        (
            "--role worker --mode all-reduce --coordinator h:1 --token-file token --host 192.0.2.1 train.py",
            "--host 192.0.2.1: ",
        ),
        ("--role server --coordinator h:1 --token-file token --join-timeout 0", "--join-timeout 0: must be"),
        ("--role server --coordinator h:1 --token-file token --lease 5", "--lease is for a whole job"),
        ("--coordinator h:1 train.py", "--coordinator is for one node"),
        ("--role worker --coordinator h:1 --token-file token --workers 2 train.py", "--workers is for a whole job"),
        ("--nonce-prefix pod-1 train.py", "--nonce-prefix is for one node that --role joins to a job"),
        ("--role worker --token-file token train.py", "--role needs --coordinator"),
        ("--role worker --coordinator h:1 train.py", "--role needs --token-file"),
        ("--role worker --coordinator h:1 --token-file token", "name the training script"),
        ("--role worker --coordinator h --token-file token train.py", "give HOST:PORT"),
        ("--role server --coordinator h:1 --token-file token train.py", "a server runs no script"),
        (
            "--mode all-reduce --servers 1 train.py",
            "--servers is for jobs with servers, and one of --mode all-reduce has",
        ),
        ("--mode all-reduce --replicas 1 train.py", "--replicas is for jobs with servers"),
        ("--mode all-reduce --transport shm train.py", "--transport is for jobs with servers"),
        ("--mode all-reduce --tcp-sockets 2 train.py", "leave it out: gloo's own connections carry the sums"),
        ("--mode ring train.py", "--mode"),
        ("--mode all-reduce --role server --coordinator h:1 --token-file token", "one of --mode all-reduce has none"),
        ("--role cook --coordinator h:1 --token-file token", "--role"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    line: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    status, output = invoke(*line.split())
    assert (status, problem in output) == (2, True), output
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "given",
    ["--checkpoint simplecache::memory://x", "--checkpoint c", "--restore c/9", "--restore file:///{here}/c/9/"],
)
def test_storages_that_can_be(jobs: list[tuple[JobSettings, JobCommands]], given: str) -> None:
    assert invoke(*given.format(here=Path.cwd()).split(), "train.py") == (3, "")


def test_an_identity_whose_job_runs_is_refused(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    line = ["--checkpoint", "c", "--identity", "run-1", "train.py"]
    with sole_saver("c", "run-1"):
        status, output = invoke(*line)
    assert status == 2
    assert "a job that runs saves under this identity" in output
    assert not jobs
    assert invoke(*line) == (3, "")


def test_a_name_that_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_job(*_: Any) -> LauncherOutcome:
        raise ConfigurationError("a job named toy runs already")

    monkeypatch.setattr(cli, "run_job", run_job)
    assert invoke("--name", "toy", "train.py") == (2, "elasticrun: a job named toy runs already\n")


def test_what_may_pass_is_told_from_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dl2 serve` tries it again."""

    def full(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    def run_job(*_: Any) -> LauncherOutcome:
        raise NotNow("the job's folder cannot be made")

    monkeypatch.setattr(cli, "run_job", run_job)
    assert invoke("train.py") == (EXIT_LATER, "elasticrun: the job's folder cannot be made\n")
    monkeypatch.setattr("elastic_ps.system.storage.check_writable", full)
    status, output = invoke("--checkpoint", "c", "train.py")
    assert (status, output) == (EXIT_LATER, "elasticrun: --checkpoint c: [Errno 28] No space left on device\n")


def test_a_checkpoint_of_others_that_cannot_be_read_keeps_nobody_from_restoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("version-1", "version-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / storage.MANIFEST).write_text("{}")
    look = storage.LocalFileSystem.info

    def info(system: Any, path: str, **settings: Any) -> Any:
        if "version-2" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(system, path, **settings)

    monkeypatch.setattr(storage.LocalFileSystem, "info", info)
    assert checks.restore_problem(str(tmp_path)) is None
    (tmp_path / "version-1" / storage.MANIFEST).unlink()
    told = checks.restore_problem(str(tmp_path))
    assert told is not None
    assert "no checkpoint can be read there" in told
    assert "Permission denied" in told
