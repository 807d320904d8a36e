"""A learnt policy that is bad on purpose loses its place in a real `dl2 serve`, and one whose weights break, too."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.policies.learnt.dl2 import POLICY_FILE, save
from dl2_scheduler.policies.learnt.weights import Weights
from tests.e2e.test_cluster import ROOT, counts, no_job_left, regression, serving, until

STOPS_AT_ONCE, NEVER_STOPS, BREAKS = 1e6, -1e6, float("nan")


def write(run, stop):
    """A network that has learnt nothing, but when to stop granting; its name as a policy."""
    run.mkdir(exist_ok=True)
    weights = new_policy(["digits"], seed=1).weights()
    arrays = {**weights.arrays, "stop.bias": np.full_like(weights.arrays["stop.bias"], stop)}
    save(Weights(weights.models, arrays), run / POLICY_FILE)
    return f"dl2:{run}"


def granted(client, policy):
    """What a policy has given to the job, slot by slot."""
    return [(each.workers, each.servers) for each in client.why("a", 1000) if each.policy == policy]


def deciding(client):
    return client.policies().deciding


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_guard_takes_out_what_starts_nothing_and_weights_that_break(tmp_path):
    folder, log = tmp_path / "state", tmp_path / "serve.log"
    bad, good = write(tmp_path / "bad", STOPS_AT_ONCE), write(tmp_path / "good", NEVER_STOPS)
    with no_job_left(folder), serving(folder, log, "--policy", bad, "--guard-slots", "2", "--slot", "1s") as client:
        assert deciding(client) == bad
        client.submit(regression(tmp_path, "a", 1000), ROOT)
        until(lambda: deciding(client) == "drf", "the guard takes the policy out")
        found = client.policies()
        assert (found.policy, found.comparison.split(": ")[1].split(" end")[0]) == (bad, "1 jobs")
        why = r"for \d+ slots in a row jobs would have ended later than under drf by more than 10%"
        assert re.match(why, found.guard)
        assert re.search(f"policy: drf DECIDES INSTEAD OF {re.escape(bad)}: {why}", log.read_text())
        shown = CliRunner().invoke(app, ["policy", "--folder", str(folder)]).output
        assert re.search(f"deciding  drf\nbecause   {why}", shown)
        assert len(granted(client, bad)) >= 2
        assert set(granted(client, bad)) == {(0, 0)}, "the fault was there"
        until(lambda: counts(client, "a") == (2, 2), "the job has what DRF gives")
        until(lambda: len(granted(client, "drf")) > 4, "and has run for some slots: one that only starts is let go")
        assert set(granted(client, "drf")) == {(2, 2)}

        client.use_policy(bad)
        assert deciding(client) == bad
        until(lambda: (1, 1) in granted(client, bad), "it decides again: no job that runs is suspended for nothing")

        client.use_policy(good)
        until(lambda: f"under {good}, after" in client.policies().comparison, "the guard compares the other one")
        until(lambda: (2, 2) in granted(client, good), "which gives what it can")
        assert deciding(client) == good
        write(tmp_path / "good", BREAKS)
        until(lambda: deciding(client) == "drf", "weights that are not finite")
        assert "weights are not finite (stop.bias)" in client.policies().guard
        assert f"policy: drf DECIDES INSTEAD OF {good}: " in log.read_text()
        with pytest.raises(BadInput, match="weights are not finite"):
            client.use_policy(good)
        assert client.status("a").phase == "running"
        client.stop("a")
        until(lambda: counts(client, "a") == "stopped", "the job's end")
