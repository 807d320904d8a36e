"""A policy that was written for an earlier release finds the names that it imports."""

from dl2_scheduler.cluster import free_resources, room


def test_names_of_earlier_releases() -> None:
    assert (room.Room, room.NodeRule) == (free_resources.FreeResources, free_resources.NodeRule)
