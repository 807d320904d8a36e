"""A job whose processes are started one by one, as pods are; no launcher watches over them."""

import os
import subprocess
import sys
import time

from coordinator.client import ClientError, CoordinatorClient
from tests.e2e import jobs
from tests.paths import ROOT

TOKEN = bytes(range(16))
PATIENCE = 120.0
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}


class Apart:
    """See the module; `workers`: that it starts with."""

    def __init__(self, folder, stack, workers=2):
        self.folder, self.stack, self.workers = folder, stack, workers
        self.folder.mkdir()
        (folder / "token").write_text(TOKEN.hex())
        self.port = 0
        self.coordinator = None
        self.nodes = []

    def start(self, name, *command, **options):
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self.stack.enter_context(
                subprocess.Popen(
                    [sys.executable, *command], env=ENVIRONMENT, **{"stdout": log, "stderr": log, **options}
                )
            )
        self.stack.callback(process.kill)
        return process

    def start_coordinator(self, *options):
        where = ["--job", "digits", "--folder", str(self.folder / "state"), "--token-file", str(self.folder / "token")]
        how = ["--workers", str(self.workers), "--servers", "1", "--seed", str(jobs.SEED), "--port", str(self.port)]
        command = ("-m", "coordinator", *where, *how, *options)
        self.coordinator = self.start("coordinator", *command, stdout=subprocess.PIPE)
        self.port = int(self.coordinator.stdout.readline().rpartition(b":")[2])
        self.client = CoordinatorClient(f"127.0.0.1:{self.port}", TOKEN)
        self.stack.callback(self.client.close)

    def lose_coordinator(self, *options):
        """It is killed, its folder taken away (to `lost`), and one of the next term started."""
        self.coordinator.kill()
        self.coordinator.wait(PATIENCE)
        (self.folder / "state").rename(self.folder / "lost")
        self.start_coordinator("--term", "2", *options)

    def start_node(self, role, number, *script):
        where = ["--coordinator", f"127.0.0.1:{self.port}", "--token-file", str(self.folder / "token")]
        how = ["--role", role, *where, "--nonce-prefix", f"{role}-{number}", *map(str, script)]
        run = ["-c", "from elastic_ps.launch.cli import main; main()"]
        self.nodes.append(self.start(f"{role}-{number}", *run, *how))

    def until(self, ready, what):
        deadline = time.monotonic() + PATIENCE
        status = None
        while time.monotonic() < deadline:
            try:
                status = self.client.status()
                if ready(status):
                    return status
            except ClientError:
                pass
            time.sleep(jobs.POLL_SECONDS)
        raise AssertionError(f"{what}: did not happen\n{status}\n{self.logs()}")

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))
