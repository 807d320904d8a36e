"""One node that is to join a job elsewhere says why it could not."""

from pathlib import Path

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import CoordinatorLost
from elastic_ps.launch.commands import JoinSettings
from elastic_ps.launch.member_agent import MemberAgent, MemberSettings
from tests.elastic_ps.launch.launch_stage import FakeCoordinator


def why_not_joined(address: str, token_file: Path) -> str:
    settings = MemberSettings(Role.WORKER, JoinSettings(address, token_file, "127.0.0.1"), join_timeout=0.01)
    with pytest.raises(CoordinatorLost) as lost:
        MemberAgent(settings, lambda nonce: ["false"]).run()
    return str(lost.value)


def test_a_token_of_another_job_is_said_to_be_one(tmp_path: Path, fake: FakeCoordinator) -> None:
    """It was told as a coordinator that had not answered, with the reason in brackets."""
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.write_text("11" * 16)
    (tmp_path / "token").write_text("00" * 16)
    assert why_not_joined(fake.address, other) == (
        f"{fake.address}: who answers there does not know this job's token: it is another job's coordinator, or "
        "somebody else; give --coordinator and --token-file of one job; the file is `token` in its folder "
        "(asked for 0.01 s)"
    )


def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("00" * 16)
    why = why_not_joined("127.0.0.1:1", tmp_path / "token")
    assert why.startswith("no coordinator has answered at 127.0.0.1:1 for 0.01 s (")
    assert why.endswith("): is the job running, and can this machine reach it?")
