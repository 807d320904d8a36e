from elastic_ps.worker.script.staging import Staging

A, B = (0, "i:0"), (0, "i:1")
OTHER = (1, "i:0")


def test_a_rehearsal_learns_the_keys_of_each_exchange():
    staging = Staging()
    staging.rehearse()
    for keys in ([A, B], [OTHER]):
        for key in keys:
            staging.stage(key)
        assert staging.closed() == set(keys)
    assert staging.trained() == 2
    assert staging.learnt == [{A, B}, {OTHER}]


def test_another_stores_turn_closes_the_exchange():
    staging = Staging()
    staging.stage(A)
    assert staging.must_close_before(OTHER)
    assert not staging.must_close_before(B)


def test_a_second_push_and_a_pull_need_the_exchange_closed():
    staging = Staging()
    staging.stage(A)
    assert staging.must_close_before(A)
    assert staging.needs(A)
    assert not staging.needs(B)


def test_what_is_closed_is_not_staged_any_more():
    staging = Staging()
    staging.stage(A)
    assert staging.closed() == {A}
    assert not staging.must_close_before(OTHER)
