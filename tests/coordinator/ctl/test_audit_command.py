"""`elasticctl audit`: a proof, its exit status, and the job whose environment a command finds itself in."""

import json
from pathlib import Path

import pytest

from coordinator.ctl import live_audit
from elastic_ps.core.data_order import DataSpec, share
from protos import elastic_pb2 as pb
from tests.coordinator.ctl.ctl_fake import TOKEN

SPEC = DataSpec(True, 53, 8)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nothing is reported late."""
    monkeypatch.setattr(live_audit, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(live_audit, "_LOOK_SECONDS", 0.0)


def entries(epochs, first=0):
    found = []
    for epoch in range(first, epochs):
        for step in range(SPEC.steps_per_epoch):
            pieces = [share(SPEC, step, rank, 2) for rank in range(2)]
            slices = [pb.Slice(worker=f"w{rank}", low=part.start, high=part.stop) for rank, part in enumerate(pieces)]
            version = epoch * SPEC.steps_per_epoch + step
            found.append(
                pb.LedgerEntry(server="s0", version=version, runs=[0, 3], epoch=epoch, step=step, slices=slices)
            )
    return found


@pytest.fixture
def trained(fake):
    """The fake coordinator's job is in its fourth epoch."""
    status = fake.statuses[0]
    status.data.CopyFrom(pb.DataSpec(elastic=True, samples=53, global_batch=8, last="short", exchanges=1))
    status.epoch, status.step, status.blocks = 3, 2, 3
    fake.ledger_entries = entries(4)[:-3]
    return fake


def test_a_whole_ledger_is_a_proof(ctl, digits, trained):
    found = ctl("audit", "digits")
    assert found.exit_code == 0
    assert found.stdout == "epochs 0 to 2: every sample entered every parameter exactly once (21 updates)\n"
    assert json.loads(ctl("audit", "--json").stdout) == {
        "exactly_once": True, "first_epoch": 0, "epochs": 3, "updates": 21, "voided": 0, "problems": [],
        "remarks": [],
    }  # fmt: skip


def test_blocks_without_updates_are_named_beside_the_proof(ctl, digits, trained):
    trained.statuses[0].blocks = 4
    found = ctl("audit", "digits")
    assert found.exit_code == 0
    assert "no update was recorded of 1 of 4 blocks, such as 3: their layers are frozen" in found.stdout


def test_what_was_used_twice_is_named_and_the_status_says_so(ctl, digits, trained):
    trained.ledger_entries.append(trained.ledger_entries[9])
    found = ctl("audit", "digits")
    assert found.exit_code == 1
    assert "NOT every sample" in found.stdout
    assert "version 9 was applied twice" in found.stdout


@pytest.mark.parametrize("told", ["ledger_began_late", "rebuilt"])
def test_a_ledger_that_was_lost_proves_the_epochs_since(ctl, digits, trained, told):
    setattr(trained.statuses[0], told, True)
    trained.ledger_entries = entries(4, first=1)[2:]
    assert json.loads(ctl("audit", "--json").stdout)["first_epoch"] == 2


def test_what_cannot_be_proved_is_said(ctl, digits, trained):
    trained.statuses[0].epoch = 0
    assert "no epoch is over" in ctl("audit").stderr
    trained.statuses[0].data.samples = 0
    found = ctl("audit")
    assert found.exit_code == 1
    assert "the ledger cannot tell which samples were used" in found.stderr


@pytest.fixture
def within(folder, fake, tmp_path: Path, monkeypatch):
    """The environment of a coordinator's pod: no folder of jobs, an address and a token."""
    token = tmp_path / "token"
    token.write_text(TOKEN.hex())
    monkeypatch.setenv("ELASTIC_COORDINATOR", fake.address)
    monkeypatch.setenv("ELASTIC_TOKEN_FILE", str(token))


def test_inside_a_jobs_pod_that_job_is_meant(ctl, fake, within):
    fake.ledger_entries = entries(1)[:1]
    assert ctl("ledger").stdout.startswith("s0 ")
    assert ctl("ledger", "digits").stdout.startswith("s0 ")
    assert ctl("ledger", "another").exit_code == 3


def test_a_job_that_is_named_comes_before_the_environment(ctl, fake, within, add_job, monkeypatch):
    monkeypatch.setenv("ELASTIC_COORDINATOR", "127.0.0.1:1")
    add_job("digits")
    assert ctl("status", "digits").exit_code == 0
