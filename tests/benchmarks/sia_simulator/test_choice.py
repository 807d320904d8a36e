"""The choice gives GPUs to the jobs that gain most, short ones before long ones."""

import itertools

import numpy as np
import pytest

from benchmarks.sia_simulator.choice import (
    ChoiceSettings,
    ConfigurationSet,
    JobOutlook,
    choose,
    pack,
    rank_weights,
    worth,
)

SETTINGS = ChoiceSettings()
EIGHT = ConfigurationSet(np.array([1, 2, 4, 8]), np.zeros(4, int), np.array([8]))


def outlook(remaining, *, speeds=(1.0, 1.9, 3.5, 6.0), **more):
    return JobOutlook(np.array(speeds), remaining, remaining / speeds[0], **more)


class TestChoice:
    def test_weights_are_those_of_hesrpt_and_all_alike_without_preference(self):
        assert rank_weights(np.array([5.0, 100.0, 20.0]), 2.0) == pytest.approx(np.sqrt([5, 1, 3]))
        assert rank_weights(np.array([5.0, 100.0, 20.0]), 1.0) == pytest.approx([1, 1, 1])

    def test_a_job_alone_gets_what_is_fastest_and_a_short_one_more_than_a_long_one(self):
        assert choose([outlook(5e4)], EIGHT, SETTINGS) == [3]
        short, long = choose([outlook(500.0), outlook(5e4)], EIGHT, ChoiceSettings(preference=20.0))
        assert (short, long) == (3, None) or EIGHT.gpus[short] > EIGHT.gpus[long]

    def test_a_restart_has_to_pay_for_longer_the_longer_it_takes(self):
        settings = ChoiceSettings(horizon=600.0, restarts=4.0)
        assert [settings.horizon_of(seconds) for seconds in (0.0, 100.0, 250.0)] == [600, 600, 1000]

    def test_to_suspend_costs_the_restart_that_follows(self):
        worths, none = worth(outlook(5e4, suspension=0.25, current=2), 2.0)
        assert worths == pytest.approx([2, 3.8, 7, 12])
        assert none == pytest.approx(-0.25 * 7)
        assert worth(outlook(5e4, suspension=0.25), 2.0)[1] == 0

    def test_a_pinned_job_keeps_what_it_has_and_too_many_of_them_are_refused(self):
        pinned = outlook(5e4, current=2, pinned=True)
        assert choose([pinned, outlook(500.0)], EIGHT, SETTINGS) == [2, 2]
        with pytest.raises(RuntimeError, match="no choice of configurations fits the GPUs"):
            choose([pinned] * 3, EIGHT, SETTINGS)

    def test_jobs_that_find_no_room_wait_and_a_speed_of_zero_is_no_choice(self):
        chosen = choose([outlook(1e3 + number, speeds=(1.0, 1.0, 1.0, 1.0)) for number in range(10)], EIGHT, SETTINGS)
        assert sum(number is not None for number in chosen) == 8
        assert choose([outlook(1e3, speeds=(1.0, 2.0, 0.0, 0.0))], EIGHT, SETTINGS) == [1]
        assert choose([], EIGHT, SETTINGS) == []

    def test_the_choice_is_the_best_of_all(self):
        random = np.random.default_rng(1)
        jobs = [outlook(seconds, speeds=tuple(np.sort(random.uniform(1, 8, 4)))) for seconds in (300.0, 2e3, 9e4)]
        weights = rank_weights(np.array([job.alone for job in jobs]), SETTINGS.preference)
        worths = [worth(job, weight)[0] for job, weight in zip(jobs, weights, strict=True)]

        def total(numbers):
            return sum(each[number] for each, number in zip(worths, numbers, strict=True) if number is not None)

        fit = [
            numbers
            for numbers in itertools.product([None, 0, 1, 2, 3], repeat=3)
            if sum(EIGHT.gpus[number] for number in numbers if number is not None) <= 8
        ]
        assert total(choose(jobs, EIGHT, SETTINGS)) == pytest.approx(max(map(total, fit)), rel=2e-3)

    def test_jobs_are_packed_into_as_few_nodes_as_they_fit(self):
        placed = pack({"one": 1, "two": 2, "whole": 8, "half": 2}, nodes=4, per_node=4)
        assert placed["whole"] == [0] * 4 + [1] * 4
        assert all(len(set(placed[name])) == 1 for name in ("one", "two", "half"))
        assert placed["two"][0] == placed["half"][0] != placed["one"][0]
