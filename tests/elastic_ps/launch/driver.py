"""`elasticrun` as a process of its own, with puppets for commands.

python -m tests.elastic_ps.launch.driver ROOT STAGE_PORT GRACE [MEMBER [PREFIX]]
"""

import sys
from pathlib import Path

from elastic_ps.core.configuration import Role
from elastic_ps.launch.cli import run_job, run_member
from elastic_ps.launch.commands import JoinSettings
from elastic_ps.launch.member_agent import MemberSettings
from elastic_ps.launch.options import JobOptions, JobSettings, NodesOptions, Script
from elastic_ps.launch.processes.output import MergedStream
from tests.elastic_ps.launch.launch_stage import PuppetCommands, puppet_command


def main() -> None:
    root, port, grace, *member = sys.argv[1:]
    if member:
        join = JoinSettings(member[0], Path(root) / "token", "127.0.0.1")
        settings = MemberSettings(Role.WORKER, join, 30.0, float(grace), *member[1:])
        sys.exit(run_member(settings, lambda nonce: puppet_command(int(port), nonce)))
    job = JobSettings(Script("train.py"), JobOptions(name="toy"), NodesOptions(grace=float(grace)))
    sys.exit(run_job(job, lambda _job: PuppetCommands(int(port)), MergedStream(sys.stdout), Path(root)).status)


if __name__ == "__main__":
    main()
