"""The epochs of a script, around the end of the job."""

from types import SimpleNamespace

import numpy as np
import pytest

import elastic_ps
from elastic_ps.core.data_order import Place
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.worker.script.data_position import StepPart
from elastic_ps.worker.script.script_job import ScriptJob


class LateJob:
    """A job whose last epoch ends while this worker rehearses in it."""

    def __init__(self, epoch=4):
        self.spec = self.epochs = self.loop_epoch = self.used_epoch = self.open_loop = self.place = None
        self.epoch, self.rehearsed, self.rank = epoch, False, 0
        self.staging = SimpleNamespace(rehearsing=False)
        self.node = SimpleNamespace(configuration=SimpleNamespace(workers=("w0",)), seed=1)
        self.begun, self.draws = [], 0

    def leave_step(self):
        """No step is under way."""

    def rehearse(self, spec):
        self.spec, self.staging.rehearsing = spec, True

    def perform(self):
        self.staging.rehearsing, self.rehearsed, self.epoch = False, True, 5

    def begin_step(self, epoch):
        self.begun.append(epoch)


def test_who_joins_at_the_end_trains_no_epoch_beyond_it(monkeypatch):
    """Found by the simulated world: the weights had one epoch too many."""
    job = LateJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler = Sampler(16, 8)
    assert [step for _ in epochs(5) for step, _, _ in sampler] == [0], "its rehearsal"
    assert job.begun == []


def test_a_joiner_trains_each_epoch_by_its_number(monkeypatch):
    """Its first loop has the rehearsal alone where that took longer: `if epoch >= 5: thaw()` came an epoch late."""
    job, steps = LateJob(), [range(8), range(8, 16), None]
    job.data_position = SimpleNamespace(upcoming=lambda place, count: [])
    job.end_step = lambda part: True

    def begin(epoch):
        positions = steps.pop(0)
        if positions is None:
            job.epoch = 6
            return None
        return SimpleNamespace(positions=positions, place=SimpleNamespace(step=positions.start // 8))

    job.begin_step = begin
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler = Sampler(16, 8)
    assert [(epoch, step) for epoch in epochs(6) for step, _, _ in sampler] == [(4, 0), (5, 10), (5, 11)]


def test_who_comes_after_the_end_has_the_jobs_parameters_by_its_rehearsal(monkeypatch):
    """Found by the simulated world: the script ended with the parameters that it had begun with."""
    job = LateJob(epoch=5)
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler = Sampler(16, 8)
    assert [(epoch, step) for epoch in epochs(5) for step, _, _ in sampler] == [(4, 0)], "its rehearsal"
    assert job.rehearsed
    assert job.begun == []
    with pytest.raises(ConfigurationError, match=r"epochs\(5\) has no epoch left"):
        next(epochs(5))  # it rehearses once


def test_a_second_loop_that_would_train_nothing_is_refused(monkeypatch):
    """A script with a loop for each of two models trained the first one alone, and said nothing."""
    job = LateJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler = Sampler(16, 8)
    for _epoch in epochs(5):
        list(sampler)
    with pytest.raises(ConfigurationError, match=r"epochs\(5\) has no epoch left: .* elastic_ps.epochs\(10\)"):
        list(epochs(5))
    assert next(epochs(7)) == 5, "it goes on"


class CountingJob(LateJob):
    """A job of this worker alone that makes two steps of eight samples in each epoch."""

    def __init__(self, epoch=0):
        super().__init__(epoch)
        self.data_position = SimpleNamespace(upcoming=lambda place, count: [])
        self.number = 2 * epoch

    @property
    def epoch(self):
        return self.number // 2

    @epoch.setter
    def epoch(self, epoch):
        self.number = 2 * epoch

    def perform(self):
        self.staging.rehearsing, self.rehearsed = False, True

    def begin_step(self, epoch):
        if epoch != self.epoch:
            return None
        self.place = Place(epoch, self.number % 2, 0)
        return StepPart(self.place, range(8))

    def end_step(self, part):
        if part is not None and part.place != self.place:
            return False  # another loop's step is under way
        self.number, self.place = self.number + 1, None
        return True

    def leave_step(self):
        if self.place is not None:
            self.end_step(None)


@pytest.mark.parametrize("kind", [{"global_batch": 8}, {"batch": 8, "consistency": "async"}])
def test_a_second_loop_in_an_epochs_body_does_not_take_the_next_epochs_samples(monkeypatch, kind):
    """A script with two phases trained each in half of the epochs, and said nothing."""
    job, loops = CountingJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)

    def train():
        for epoch in epochs(4):
            for _phase in range(2):
                loops.append((epoch, [step for step, _, _ in Sampler(16, **kind)]))

    with pytest.raises(ConfigurationError, match="when the samples of epoch 0 are used, by a loop before it"):
        train()
    assert loops == [(0, [0, 0, 1])]


def test_a_second_loop_in_an_epochs_body_goes_on_where_the_first_has_broken_off(monkeypatch):
    job, loops = CountingJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for epoch in epochs(2):
        for _step in Sampler(16, 8):
            if job.place is not None:
                break
        loops.append((epoch, [step for step, _, _ in Sampler(16, 8)]))
    assert loops == [(0, [1]), (1, [3])]


@pytest.mark.parametrize("kind", [{"global_batch": 8}, {"batch": 8, "consistency": "async"}])
def test_an_epoch_that_comes_again_as_its_loop_was_left_is_told_of_once(monkeypatch, caplog, kind):
    """A dry run of one batch in each epoch trained them all, in as many bodies as there are batches."""
    job, begun = CountingJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for epoch in epochs(2):
        begun.append(epoch)
        for _step in Sampler(16, **kind):
            if job.place is not None:  # behind the rehearsal
                break
    assert begun == [0, 0, 1, 1]  # for each step
    assert caplog.messages == [
        "epoch 0 comes again, as the script has left its loop over the samples (break) before all were used: an epoch "
        "comes until they are. To use fewer make the data set smaller; to end the training leave the loop over epochs, "
        "too"
    ]


def test_epochs_whose_samples_are_used_are_not_told_of(monkeypatch, caplog):
    job = CountingJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for _epoch in epochs(3):
        for step, _, _ in Sampler(16, 8):
            if step % 2:
                break
    assert job.epoch == 3
    assert not caplog.messages


def test_a_second_loop_has_nothing_where_the_first_has_broken_off_in_the_last_step(monkeypatch):
    job, loops = CountingJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for epoch in epochs(2):
        for step, _, _ in Sampler(16, 8):
            if step % 2:
                break
        loops.append((epoch, list(Sampler(16, 8))))
    assert loops == [(0, []), (1, [])]


def test_a_joiner_that_comes_late_has_no_second_loop_either(monkeypatch):
    job, loops = LateJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for epoch in epochs(6):
        for _phase in range(2):
            loops.append((epoch, [step for step, _, _ in Sampler(16, 8)]))
        job.epoch += epoch == 5
    assert loops == [(4, [0]), (4, []), (5, []), (5, [])]


def test_two_loops_at_once_are_refused(monkeypatch):
    """Neither could end its steps, and the first death of another worker left them going on for ever."""
    job = CountingJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    next(epochs(2))
    both = zip(Sampler(16, 8), Sampler(16, 8), strict=True)
    with pytest.raises(ConfigurationError, match=r"two loops over the job's samples .* make one data set"):
        list(both)
    assert job.number == 1, "the step that was under way"


def test_a_look_at_a_batch_in_a_loops_body_is_no_second_loop(monkeypatch):
    """It takes the next step, which comes again when it has been let go."""
    job, steps = CountingJob(), []
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for _epoch in epochs(1):
        for step, _, _ in Sampler(16, 8):
            steps.append(step)
            if job.place is not None and step == 0:
                assert next(iter(Sampler(16, 8)))[0] == 1
    assert steps == [0, 0, 1]


def test_loops_behind_those_over_epochs_are_in_no_epochs_body(monkeypatch):
    job = CountingJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    for _epoch in epochs(3):
        for _step in Sampler(16, 8):
            pass
        if job.number == 4:
            break  # it has learnt enough
    assert [step for step, _, _ in Sampler(16, 8)] == [4, 5]
    assert list(Sampler(16, 8)) == []


def test_a_script_that_skips_an_epoch_is_told_so(monkeypatch):
    """It got the same epoch again and again, and neither trained nor ended."""
    job = LateJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler, begun = Sampler(16, 8), []

    def train():
        for epoch in epochs(7):
            begun.append(epoch)
            assert len(begun) < 3, "for ever"
            if epoch != 5:
                list(sampler)

    with pytest.raises(ConfigurationError, match=r"must iterate over an elastic_ps\.Sampler, and train"):
        train()
    assert begun == [4, 5]


def test_a_worker_that_takes_no_batch_may_wait_for_the_others_epoch(monkeypatch):
    """In an async job the others do the batches."""
    job = LateJob()
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", lambda: job)
    sampler, begun = Sampler(16, batch=8, consistency="async"), []
    for epoch in epochs(6):
        begun.append(epoch)
        if epoch != 5:
            list(sampler)
        elif begun.count(5) == 2:
            job.epoch = 6
    assert begun == [4, 5, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 16, "global_batch": 64 / 8}, "global_batch must be a whole number, not 8.0"),
        ({"samples": 16, "batch": 2.5, "consistency": "async"}, "batch must be a whole number, not 2.5"),
        ({"samples": 16, "batch": 2, "consistency": "ssp", "staleness": 1.5}, "staleness must be a whole number"),
        ({"samples": 16, "batch": 2, "consistency": "ssp", "staleness": 2**32}, "staleness must be at most 4294967295"),
        (
            {"samples": 16, "global_batch": np.array([8, 8])},
            r"global_batch must be a whole number, not array\(\[8, 8\]\)",
        ),
        ({"samples": ["image"] * 16, "global_batch": 8}, r"samples must be a whole number, not \['image', "),
        ({"samples": 16, "global_batch": 8, "load": "load"}, "load must be a function, not 'load'; or leave it out"),
        ({"samples": 16, "global_batch": 8, "lookahead": 4}, "lookahead must be a function, not 4"),
        ({"samples": 16, "global_batch": 8, "shuffle": "False"}, "shuffle must be True or False, not 'False'"),
        ({"samples": 16, "global_batch": 8, "shuffle": None}, "shuffle must be True or False, not None"),
    ],
    ids=[
        "global_batch",
        "batch",
        "staleness",
        "far ahead",
        "two batches",
        "data set",
        "load",
        "lookahead",
        "text",
        "None",
    ],
)
def test_a_sampler_of_parts_of_samples_is_refused_where_it_is_made(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Sampler(**arguments)


def test_a_sampler_takes_numpys_whole_numbers():
    assert Sampler(16, 8, shuffle=np.bool_(False)).spec.order == "given"
    spec = Sampler(np.int64(16), np.int32(8)).spec
    assert (type(spec.samples), type(spec.global_batch)) == (int, int)


@pytest.mark.parametrize("count", [None, "3", 2.5, 3.0, float("nan"), float("inf"), [3], np.array([3, 4])])
def test_a_number_of_epochs_that_is_none_is_refused_at_once(monkeypatch, count):
    """`epochs(2.5)` trained three, and `epochs("3")` raised Python's own words."""
    monkeypatch.delattr("elastic_ps.data.sampler.script_job")  # no job is joined
    with pytest.raises(ConfigurationError, match="the number of epochs must be a whole number, not "):
        epochs(count)


def test_epochs_are_counted_from_0(monkeypatch):
    monkeypatch.setattr("elastic_ps.data.sampler.script_job", LateJob)
    with pytest.raises(ConfigurationError, match="the number of epochs must be 0 or more, not -1"):
        epochs(-1)
    assert list(epochs(0)) == []
    assert next(epochs(np.int32(5))) == 4


@pytest.mark.parametrize("step", [None, "3", 2.5, float("nan"), [3]])
def test_metrics_of_a_step_that_is_none_are_refused(monkeypatch, step):
    monkeypatch.delattr("elastic_ps.script.script_job")  # no job is joined
    with pytest.raises(ConfigurationError, match="report: the step must be a whole number, not "):
        elastic_ps.report(step, loss=0.5)
    with pytest.raises(ConfigurationError, match="report: the step must be 0 or more, not -1"):
        elastic_ps.report(-1, loss=0.5)


def test_a_joiner_that_rehearses_is_not_taken_for_the_first_worker():
    """`if elastic_ps.rank() == 0` did in each joiner what is for one worker to do."""
    configuration = SimpleNamespace(workers=("w0", "w1"), ranks={"w0": 0, "w1": 1})
    sessions = (SimpleNamespace(node=name) for name in ("w1", "w2"))
    nodes = [SimpleNamespace(configuration=configuration, session=session) for session in sessions]
    assert [ScriptJob(node).rank for node in nodes] == [1, 2]
