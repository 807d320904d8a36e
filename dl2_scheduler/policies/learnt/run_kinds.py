"""This module says what lies in a folder where somebody looks in vain for a policy of how many tasks jobs get."""

from pathlib import Path

from dl2_scheduler.policies.chic.weights import CHIC_FILE
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, SPEEDS_FILE
from dl2_scheduler.policies.learnt_names import CHIC


def other_kind(run: Path) -> str:
    """Return what a folder holds instead and which option takes it, for people; "": nothing of another kind.

    Args:
        run: a folder, or what should be one.
    """
    kinds = {
        PLACER_FILE: f"a placement policy, which says where tasks run: give it as --placement learnt:{run}",
        AGENTS_FILE: f"agents that place, which say where tasks run: give them as --placement agents:{run}",
        CHIC_FILE: f"a policy of Chic: give it as --policy {CHIC}{run} to dl2 simulate or evaluate, with --pool",
        SPEEDS_FILE: f"a model of speeds, for a planner that says where tasks run: --placement local-search:{run}",
    }
    return next((f"it holds {what} ({name})" for name, what in kinds.items() if (run / name).exists()), "")
