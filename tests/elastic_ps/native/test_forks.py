"""Loops go on in a fork of a process that has run some: a script may load data in forks."""

import multiprocessing

from elastic_ps.native.threads import in_parallel


def counted():
    done = []
    in_parallel(100, 1, lambda low, high: done.append(high - low))
    return sum(done)


def test_a_fork_has_threads_of_its_own():
    assert counted() == 100
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(counted).get(60) == 100
