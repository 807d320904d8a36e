"""What the scheduler on Kubernetes remembers, where it cannot be written."""

import pytest

from dl2_scheduler.backends.kube.scheduler_memory import SchedulerMemory
from dl2_scheduler.cluster.errors import StateNotWritten


def test_it_is_told_and_later_it_can_be(tmp_path):
    memory = SchedulerMemory(tmp_path / "kube.sqlite", 1000.0)
    memory.ran({"a": 1}, {})
    memory._database.execute("PRAGMA query_only = 1")
    with pytest.raises(
        StateNotWritten, match=r"cannot write .*kube\.sqlite: .* readonly database; mend that, and start"
    ):
        memory.ran({"a": 2}, {})
    with pytest.raises(StateNotWritten):
        memory.next_slot(0)
    memory._database.execute("PRAGMA query_only = 0")
    assert memory.slots_run == {"a": 1}
    memory.ran({"a": 3}, {})
    memory.close()
    again = SchedulerMemory(tmp_path / "kube.sqlite", 1001.0)
    assert again.slots_run == {"a": 3}
    again.close()


def test_slots_are_numbered_on_where_the_history_has_later_ones(tmp_path):
    memory = SchedulerMemory(tmp_path / "kube.sqlite", 1000.0)
    memory.begin_from(7)
    memory.begin_from(3)
    assert memory.slot == 7
    memory.next_slot(7)
    memory.close()
    again = SchedulerMemory(tmp_path / "kube.sqlite", 1001.0)
    assert again.slot == 8
    again.close()
