"""Tasks kept to their share: real processes under quotas where this machine lets us, folders that play the kernel's."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dl2_scheduler.backends.local.runtime import TaskShape
from dl2_scheduler.backends.local.tasks import cgroups, task_entry
from dl2_scheduler.backends.local.tasks.cgroups import Cgroups, CgroupsUnavailable, open_cgroups
from dl2_scheduler.backends.local.tasks.isolation import IsolationMode, NoIsolation, Pacing, Quotas, make_isolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.errors import BadInput

SHAPE = TaskShape("a", 1, {"worker": 2.0, "server": 1.0}, {"worker": {"WORD": "of a worker"}, "server": {}})
SPINS = """
import os, time
print(os.environ.get('WORD'), flush=True)
began, used = time.monotonic(), time.process_time()
while time.process_time() < used + 0.4: pass
print((time.process_time() - used) / (time.monotonic() - began), flush=True)
while True: pass
"""
SECONDS = 20.0


def kernel(folder, version, controllers="cpu"):
    """What the kernel would say of a process in a group; returns the folder that plays /proc/self."""
    mount, proc = folder / "mount", folder / "proc"
    (mount / "ours").mkdir(parents=True)
    proc.mkdir()
    kind = ("cgroup", "rw,cpu,cpuacct") if version == 1 else ("cgroup2", "rw")
    (proc / "mountinfo").write_text(f"30 20 0:1 / {mount} rw - {kind[0]} {kind[0]} {kind[1]}\n")
    (proc / "cgroup").write_text("4:cpuacct,cpu:/ours\n" if version == 1 else "0::/ours\n")
    for group in (mount / "ours", mount / "ours" / "dl2-x"):
        group.mkdir(exist_ok=True)
        (group / "cgroup.controllers").write_text(controllers)
        (group / "cgroup.subtree_control").write_text("")
    return proc, mount / "ours" / "dl2-x"


@pytest.mark.parametrize(("version", "files"), [(1, ["cpu.cfs_period_us", "cpu.cfs_quota_us"]), (2, ["cpu.max"])])
def test_groups_are_made_below_our_own(tmp_path, monkeypatch, version, files):
    proc, folder = kernel(tmp_path, version)
    monkeypatch.setattr(Path, "rmdir", lambda path: None)  # the kernel's group folders go with their files
    groups = open_cgroups("dl2-x", proc)
    assert (groups.folder, groups.version) == (folder, version)
    (probe,) = groups.all()
    assert sorted(path.name for path in probe.iterdir()) == files
    if version == 2:
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu"


def test_where_there_are_none(tmp_path):
    proc, _ = kernel(tmp_path, 2, controllers="memory")
    with pytest.raises(CgroupsUnavailable, match="no cpu controller is mounted"):
        open_cgroups("dl2-x", proc)
    proc, _ = kernel(tmp_path / "other", 1)
    (tmp_path / "other" / "proc" / "cgroup").write_text("4:cpu:/nowhere\n")
    with pytest.raises(CgroupsUnavailable, match=r"nowhere.*: No such file"):
        open_cgroups("dl2-x", proc)


@pytest.mark.parametrize(
    ("version", "cores", "expected"),
    [
        (1, 0.5, {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "10000"}),
        (1, 0.02, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "2000"}),
        (2, 2.0, {"cpu.max": "40000 20000"}),
        (2, 0.0001, {"cpu.max": "1000 100000"}),  # the kernel takes no less
    ],
)
def test_limits(version, cores, expected):
    assert Cgroups(Path(), version).limits(cores) == expected


def test_the_limit_of_a_process_is_read_from_its_group(tmp_path):
    for version, files in (
        (1, {"cpu.cfs_quota_us": "5000", "cpu.cfs_period_us": "20000"}),
        (2, {"cpu.max": "5000 20000"}),
    ):
        folder, proc = tmp_path / f"dl2-{version}", tmp_path / "proc" / str(version)
        group = folder / "a-1.worker.7"
        group.mkdir(parents=True)
        proc.mkdir(parents=True)
        for name, text in files.items():
            (group / name).write_text(text)
        (proc / "cgroup").write_text("0::/dl2/a-1.worker.7\n")
        groups = Cgroups(folder, version)
        assert groups.limit_of(version, tmp_path / "proc") == 0.25
        (proc / "cgroup").write_text("0::/\n")
        assert groups.limit_of(version, tmp_path / "proc") == 0.0
        assert groups.limit_of(99, tmp_path / "proc") == 0.0


def test_a_container_has_the_cores_of_its_quota(tmp_path):
    whole = len(os.sched_getaffinity(0))
    proc, folder = kernel(tmp_path, 2)
    assert cgroups.allowed_cores(proc) == whole
    (folder.parent / "cpu.max").write_text("max 100000\n")
    assert cgroups.allowed_cores(proc) == whole
    (folder.parents[1] / "cpu.max").write_text("50000 100000\n")
    assert cgroups.allowed_cores(proc) == 0.5
    proc, folder = kernel(tmp_path / "one", 1)
    for name, text in (("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "100000")):
        (folder.parent / name).write_text(text)
    assert cgroups.allowed_cores(proc) == whole
    (folder.parent / "cpu.cfs_quota_us").write_text("25000")
    assert cgroups.allowed_cores(proc) == 0.25
    assert cgroups.allowed_cores(tmp_path / "none") == whole


def test_modes(tmp_path, monkeypatch):
    assert isinstance(make_isolation(IsolationMode.NONE, tmp_path), NoIsolation)
    assert isinstance(make_isolation(IsolationMode.PACING, tmp_path), Pacing)

    def none(name):
        raise CgroupsUnavailable("no cpu controller is mounted")

    monkeypatch.setattr("dl2_scheduler.backends.local.tasks.isolation.open_cgroups", none)
    assert make_isolation(IsolationMode.AUTO, tmp_path).words.endswith("no cgroup quotas: no cpu controller is mounted")
    with pytest.raises(BadInput, match="--isolation cgroup: no cpu controller is mounted; give auto"):
        make_isolation(IsolationMode.CGROUP, tmp_path)


def run(files, role, code=SPINS):
    """A task that begins as elasticrun's do."""
    command = [*files.wrap(SHAPE, role).split(), sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0, text=True)


def line(process):
    """The next that it says, waited for."""
    return process.stdout.readline().strip()


def end(process):
    process.kill()
    process.communicate(timeout=SECONDS)


def test_a_paced_worker_is_told_its_share_and_has_its_environment(tmp_path, monkeypatch):
    files = TaskFiles(tmp_path / "tasks", Pacing(), 2.0, 16.0)
    files.write(SHAPE)
    (path,) = (tmp_path / "tasks").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    tells = "import os; print(os.environ.get('ELASTIC_CPU_SHARE'), os.environ.get('WORD'), flush=True); input()"
    for role, words in (("worker", "0.25 of a worker"), ("server", "None None")):
        process = run(files, role, tells.replace("input()", "__import__('signal').pause()"))
        try:
            assert line(process) == words
            assert files.isolation.limit_of(process.pid) == (0.25 if role == "worker" else 0.0)
        finally:
            end(process)
    assert files.words == (
        "pacing: workers rest between steps to keep to their share; nothing limits servers; a slot is 0.125 of 2 cores"
    )
    closed = []
    monkeypatch.setattr(files.isolation, "close", lambda: closed.append(True))
    files.close()
    assert closed == []  # a task of the job may begin later
    (tmp_path / "tasks" / "of somebody").mkdir()
    files.tend([])
    (tmp_path / "tasks" / "of somebody").rmdir()
    assert list((tmp_path / "tasks").iterdir()) == []
    files.close()
    assert closed == [True]


@pytest.fixture
def quotas(tmp_path):
    try:
        found = make_isolation(IsolationMode.CGROUP, tmp_path)
    except BadInput as error:
        pytest.skip(f"this machine lets nobody limit processor time: {error}")
    yield found
    found.close()
    assert not Path(found.confine("a-1", "worker", 1.0).group).parent.exists()


@pytest.mark.slow
def test_a_task_is_limited_before_it_begins_and_its_limit_follows(quotas, tmp_path):
    files = TaskFiles(tmp_path / "tasks", quotas, 1.0, 8.0)
    files.write(SHAPE)
    process = run(files, "worker")
    try:
        assert line(process) == "of a worker"
        assert quotas.limit_of(process.pid) == pytest.approx(0.25)
        assert 0 < float(line(process)) <= 0.25 * 1.2  # on a busy machine it gets less, and never more
        fewer_slots = TaskFiles(tmp_path / "tasks", quotas, 1.0, 4.0)  # dl2 serve was started again with other --slots
        fewer_slots.tend([SHAPE])
        assert quotas.limit_of(process.pid) == pytest.approx(0.5)
        quotas.tend({})  # its job is not known any more: it goes on, and its group stays as long
        assert quotas.limit_of(process.pid) == pytest.approx(0.5)
    finally:
        end(process)
    group = Path(f"{quotas.confine('a-1', 'worker', 1.0).group}.worker.{process.pid}")
    assert group.exists()
    quotas.tend({})
    assert not group.exists()


def test_a_group_that_is_removed_while_a_task_enters_it_is_made_again(tmp_path, monkeypatch):
    group, writes = tmp_path / "group", []
    write = Path.write_text

    def removed_once(path, text):
        writes.append(path.name)
        if len(writes) == 1:
            group.rmdir()
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", removed_once)
    task_entry.enter(group, {"cpu.max": "1 2"})
    assert writes == ["cpu.max", "cpu.max", "cgroup.procs"]
    assert (group / "cgroup.procs").read_text() == str(os.getpid())


def test_a_task_that_cannot_enter_says_so_and_runs(tmp_path):
    place = {"group": str(tmp_path / "none" / "a-1"), "limits": {"cpu.max": "1 2"}, "environment": {}}
    (tmp_path / "file").write_text(json.dumps({"worker": place}))
    command = [sys.executable, "-I", "-S", task_entry.__file__, str(tmp_path / "file"), "worker", "/bin/echo", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "ran\n"
    assert "dl2: this worker runs without a limit" in done.stderr


def test_a_group_in_use_stays(tmp_path):
    groups = Cgroups(tmp_path, 2)
    (tmp_path / "a-1.worker.3" / "file").mkdir(parents=True)
    assert not groups.remove(tmp_path / "a-1.worker.3")
    Quotas(groups).tend({})
    assert [path.name for path in groups.all()] == ["a-1.worker.3"]
    assert list(Cgroups(tmp_path / "none", 2).all()) == []
    assert cgroups.Cgroups(tmp_path, 2).limit_of(os.getpid()) == 0.0


def test_files_that_somebody_has_deleted_are_written_again(tmp_path):
    """Else each task that begins from then on would end at once, and count as a death of its job."""
    files = TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0)
    given = TaskShape("digits", 3, {"worker": 1.0, "server": 1.0}, {"worker": {}, "server": {}})
    files.tend([given])
    shutil.rmtree(tmp_path / "tasks")
    files.tend([given])
    assert (tmp_path / "tasks" / "digits-3.json").exists()
    shutil.rmtree(tmp_path / "tasks")
    files.tend([])
    files.close()


def test_a_full_disk_is_told_of_once_and_ends_no_scheduler(tmp_path, monkeypatch, caplog):
    files = TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0)
    given = TaskShape("digits", 3, {"worker": 1.0, "server": 1.0}, {"worker": {}, "server": {}})

    def full(*_given, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for _ in range(2):
            files.tend([given])
    assert [each.message for each in caplog.records] == [
        "what tasks have cannot be written down: [Errno 28] No space left on device"
    ]
    files.tend([given])
    assert (tmp_path / "tasks" / "digits-3.json").exists()
