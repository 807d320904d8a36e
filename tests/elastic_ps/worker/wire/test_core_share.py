"""A worker rests after steps: with a clock that moves when it rests."""

import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.node.settings import NodeSettings
from elastic_ps.worker.wire.core_share import CoreShare


class Machine:
    """Its processor time and its wall clock, in seconds."""

    def __init__(self) -> None:
        self.wall, self.cpu, self.rests = 0.0, 0.0, 0

    def work(self, seconds: float) -> None:
        self.wall += seconds
        self.cpu += seconds

    def rest(self, seconds: float) -> None:
        self.wall += seconds
        self.rests += 1


def pace(machine: Machine, share: float) -> CoreShare:
    return CoreShare(share, lambda: machine.wall, lambda: machine.cpu, machine.rest)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_processor_time_stays_within_the_share_however_long_steps_are(share: float) -> None:
    machine = Machine()
    paced = pace(machine, share)
    paced.stepped()  # what came before the first step, as imports, counts for nothing
    for step in range(100):
        machine.work(0.01 if step % 3 else 0.2)
        paced.stepped()
    assert machine.cpu / machine.wall == pytest.approx(share, rel=1e-6)


def test_who_uses_less_never_rests_and_saves_nothing_up() -> None:
    machine = Machine()
    paced = pace(machine, 0.5)
    for _ in range(10):
        machine.work(0.1)
        machine.wall += 0.2  # it waited for others
        paced.stepped()
    assert machine.rests == 0
    machine.work(1.0)
    paced.stepped()
    assert machine.rests == 1


def test_without_a_share_it_never_rests() -> None:
    machine = Machine()
    paced = pace(machine, 0.0)
    for _ in range(3):
        machine.work(1.0)
        paced.stepped()
    assert machine.rests == 0


def test_the_share_comes_from_the_environment(tmp_path) -> None:
    (tmp_path / "token").write_text("00" * 16)
    environment = {"ELASTIC_COORDINATOR": "h:1", "ELASTIC_TOKEN_FILE": str(tmp_path / "token")}
    assert NodeSettings.from_environment(environment).cpu_share == 0.0
    assert NodeSettings.from_environment({**environment, "ELASTIC_CPU_SHARE": "0.25"}).cpu_share == 0.25
    for wrong in ("-1", "nan", "half", "0"):
        with pytest.raises(ConfigurationError, match=r"ELASTIC_CPU_SHARE is .*: give cores"):
            NodeSettings.from_environment({**environment, "ELASTIC_CPU_SHARE": wrong})
