"""Clusters that share a folder: what one finds out, the others dream of, try, and judge by themselves."""

import json
import logging
from contextlib import ExitStack, closing
from itertools import pairwise

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.federated.knowledge import type_digest
from dl2_scheduler.learning.federated.member import FederationMember
from dl2_scheduler.learning.federated.sharing_status import SharingStatus
from dl2_scheduler.learning.live.dreamer import Dreamer
from dl2_scheduler.learning.live.judge import Verdict
from dl2_scheduler.learning.live.process import Learner
from dl2_scheduler.learning.live.program import Dreaming
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.weights import ARRAYS
from dl2_scheduler.world_model.observed import ObservedCluster
from tests.dl2_scheduler.hearing import listen
from tests.dl2_scheduler.learning.federated.clusters import network
from tests.dl2_scheduler.learning.test_live_learning import FAST, arrays, job, live, new_run, same

IN_PROGRAM = "dl2_scheduler.learning.live.program"


class LivedCluster:
    """A simulated cluster with a history, in a folder of its own, that takes part."""

    def __init__(self, path, shared, stack, jobs=10, lived=None):
        self.path = path
        path.mkdir()
        self.history = stack.enter_context(closing(History(path / HISTORY_FILE)))
        self.loop, self.policies, self.cluster = live(self.history, path, jobs=jobs)
        for _ in range(lived or 1):
            self.loop.slot()
        self.observed = ObservedCluster(self.history)
        self.member = FederationMember(shared, path, lambda: 1.7e9)

    def look(self):
        """Catch up, and see what others tell."""
        self.observed.catch_up()
        self.member.look(self.observed)

    def tell(self, weights):
        """Tell others what it knows."""
        self.member.tell(self.observed, weights)


@pytest.fixture
def clusters(tmp_path):
    """One that has lived for eight slots, and one that has just begun."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        yield LivedCluster(tmp_path / "elder", shared, stack, lived=8), LivedCluster(tmp_path / "late", shared, stack)


def test_a_late_cluster_knows_at_once_what_an_elder_one_measured(clusters):
    elder, late = clusters
    elder.look()
    late.look()
    assert late.observed.fitted.models == ()
    elder.tell(network("ab"))
    late.look()
    assert late.observed.fitted.models, "types of its first jobs"
    assert set(late.observed.fitted.models) <= set(elder.observed.fitted.models)
    for model in late.observed.fitted.models:
        grid = late.observed.fitted.grid(job("ab".index(model), 0.0))
        for at, (_, measured) in elder.observed.fitted.reports[model].items():
            assert grid[at] == pytest.approx(measured, rel=0.1)
    assert late.member.report["clusters"] == 1
    assert late.member.report["speeds"] > 0
    late.tell(network("ab"))
    elder.look()
    assert elder.member.report["clusters"] == 1
    assert elder.member.report["speeds"] == 0, "what it heard from the elder one is not told as its own"


def test_no_job_user_or_path_is_told(clusters, tmp_path):
    elder, _ = clusters
    elder.look()
    elder.tell(network("ab"))
    (file,) = (tmp_path / "shared").iterdir()
    with np.load(file) as found:
        texts = [str(found[name]) for name in found if found[name].dtype.kind not in "if"]
        numbers = [name for name in found if found[name].dtype.kind in "if"]
    (about,) = map(json.loads, texts)
    assert set(about) == {"format", "cluster", "at", "types", "models"}
    assert about["types"] == [type_digest(model) for model in elder.observed.fitted.reports]
    assert about["models"] == [type_digest(model) for model in "ab"]
    assert set(numbers) == {"counts", "means", *ARRAYS}


def test_policies_are_tried_ever_more_rarely_and_the_one_of_most_measurements_first(tmp_path, clusters):
    elder, late = clusters
    with ExitStack() as stack:
        third = LivedCluster(tmp_path / "third", tmp_path / "shared", stack, lived=2)
        for cluster, seed in ((third, 1), (elder, 2)):
            cluster.look()
            cluster.tell(network("ab", seed))
        own, tried = network("ba", 3), []
        for slot in range(60):
            late.look()
            if (proposal := late.member.proposal(own)) is not None:
                assert proposal.models == ("b", "a")
                (seed,) = [at for at in (1, 2) if same({"share": network("ab", at).arrays["share"]}, proposal.arrays)]
                tried.append((slot, {1: "third", 2: "elder"}[seed]))
    elders = [slot for slot, whose in tried if whose == "elder"]
    assert elders[0] == 0, "it has measured most"
    assert [after - before for before, after in pairwise(elders)] == [3, 6, 12, 24]
    assert [slot for slot, whose in tried if whose == "third"] == [6, 12, 18, 30, 54]


def test_a_policy_of_another_size_is_not_tried(clusters, caplog):
    elder, late = clusters
    elder.look()
    elder.tell(network("ab", hidden=32))
    late.look()
    with caplog.at_level(logging.WARNING):
        assert late.member.proposal(network("ab")) is None
        assert late.member.proposal(network("ab")) is None
    assert [record.msg for record in caplog.records] == ["the policy of cluster %s is of another size: it is not tried"]


def test_a_cluster_tells_when_its_policy_changes_and_now_and_then(clusters, tmp_path):
    elder, _ = clusters
    written = set()
    for slot in range(25):
        elder.look()
        elder.tell(network("ab", seed=slot // 15))
        (file,) = (tmp_path / "shared").glob("*.npz")
        written.add(file.stat().st_mtime_ns)
    assert len(written) == 3, "in slots 0, 10 and 15"


def test_whatever_happens_to_the_folder_it_goes_on_alone(clusters, tmp_path, caplog):
    elder, late = clusters
    elder.look()
    elder.tell(network("ab"))
    late.look()
    (tmp_path / "shared").rename(tmp_path / "gone")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            late.look()
            late.tell(network("ab"))
    assert late.observed.fitted.models, "what was heard before is still known"
    assert "the folder cannot be read" in late.member.report["trouble"]
    assert "the folder cannot be written" in late.member.report["trouble"]
    assert len(caplog.records) == 2, "each is said once"
    (tmp_path / "gone").rename(tmp_path / "shared")
    late.look()
    late.tell(network("ab"))
    assert late.member.report["trouble"] == ""
    assert len(list((tmp_path / "shared").glob("*.npz"))) == 2


@pytest.mark.slow
def test_two_loops_that_share_a_folder_learn_and_a_policy_that_wins_is_gone_on_from(clusters, tmp_path, monkeypatch):
    """Each judges by itself: what one accepts, the other may refuse."""
    verdicts = []

    def judged(proposal, present, *_):
        verdicts.append(proposal)
        return Verdict([1.0], [1.0 if refuses else 2.0])

    monkeypatch.setattr(f"{IN_PROGRAM}.judge", judged)
    monkeypatch.setattr(f"{IN_PROGRAM}.Dreamer", lambda folder, rule: Dreamer(folder, rule, FAST))
    monkeypatch.setattr(f"{IN_PROGRAM}._YOUNG", 0)  # one update after a slot
    elder, late = clusters
    runs = {each: new_run(each.path / "run", models) for each, models in ((elder, "ab"), (late, "ba"))}
    dreaming = {each: Dreaming(run, each.history, NodeRule.SPREAD, each.member) for each, run in runs.items()}
    refuses = True
    assert dreaming[elder].dream()["sharing"]["clusters"] == 0
    before = arrays(runs[late])
    said = dreaming[late].dream()
    assert said["sharing"]["accepted"] is False
    assert said["sharing"]["speeds"] > 0, "it dreams before any job of its own has told a speed"
    assert same(arrays(runs[late]), before)
    refuses = False
    for cluster in (elder, late):
        cluster.loop.slot()
    assert dreaming[elder].dream()["sharing"]["accepted"] is True, "of the late one, whose weights are others"
    assert same(load(runs[elder].path).arrays, verdicts[-1].arrays)
    assert same(dreaming[elder]._dreamer.weights.arrays, verdicts[-1].arrays)
    assert Dreaming(runs[elder], elder.history, NodeRule.SPREAD)._dreamer.weights.models == ("a", "b")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_program_shares_beside_the_loop_which_shows_it(clusters, tmp_path):
    elder, late = clusters
    elder.member = FederationMember(tmp_path / "shared", elder.path)  # by the program's clock
    elder.look()
    elder.tell(network("ab"))
    run = new_run(tmp_path / "run")
    name = f"dl2:{run.path}"
    late.policies.use(name)
    for _ in range(4):
        late.loop.slot()
    with closing(Learner(late.policies, late.path, NodeRule.SPREAD, cores=1, shared=tmp_path / "shared")) as learner:
        learner._follow(name)
        late.loop._observers, heard = (learner,), listen(learner._side)
        late.loop.slot()
        heard.wait(2)
        late.loop.slot()
        assert learner.sharing.clusters == 1, learner.summary
        assert learner.sharing.tried == 1
        assert "1 other clusters; " in learner.sharing.summary
        assert "of 1 policies of theirs accepted; the last was " in learner.sharing.summary
    assert len(list((tmp_path / "shared").glob("cluster-*.npz"))) == 2


def test_what_is_shown_of_sharing(tmp_path):
    status = SharingStatus(tmp_path)
    assert status.summary == f"{tmp_path}: nothing was shared yet"
    said = {"clusters": 2, "far": 0, "types": 3, "speeds": 41, "off": 0.07, "ignored": 0, "trouble": ""}
    status.hear({**said, "verdict": "refused: mean slots of a job: ...", "accepted": False})
    status.hear({**said, "verdict": "accepted: mean slots of a job: ...", "accepted": True})
    status.hear({**said, "ignored": 1, "far": 1})
    assert status.summary == (
        f"{tmp_path}: 2 other clusters; 41 speeds of 3 types are theirs, off ours by 7% where both tried; 1 too far "
        "off to be used; 1 of 2 policies of theirs accepted; the last was accepted: mean slots of a job: ...; 1 files "
        "ignored, see logs/learning.log"
    )
    status.hear({**said, "off": None, "speeds": 0, "types": 0, "clusters": 0, "trouble": "the folder cannot be read"})
    assert "0 speeds of 0 types are theirs; " in status.summary
    assert status.summary.endswith("; the folder cannot be read")
