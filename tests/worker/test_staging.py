from elastic_ps.worker.staging import Staging

A, B, C = (0, "i:0"), (0, "i:1"), (0, "i:2")
OTHER = (1, "i:0")


def rehearsed(*exchanges):
    staging = Staging()
    staging.rehearse()
    for keys in exchanges:
        for key in keys:
            assert not staging.stage(key, wants_value=True)
        staging.closed()
    assert staging.trained() == len(exchanges)
    return staging


def test_an_elastic_exchange_closes_with_the_last_learnt_key_in_any_order():
    staging = rehearsed([A, B, C])
    assert [staging.stage(key, wants_value=True) for key in (C, A, B)] == [False, False, True]
    assert staging.closed() == {A, B, C}
    assert staging.position == 1


def test_two_trainers_close_in_turn():
    staging = rehearsed([A, B], [OTHER])
    assert not staging.stage(A, wants_value=True)
    assert staging.stage(B, wants_value=True)
    staging.closed()
    assert staging.stage(OTHER, wants_value=True)


def test_another_stores_turn_closes_the_exchange():
    staging = Staging()
    staging.rehearse()
    staging.stage(A, wants_value=True)
    assert staging.must_close_before(OTHER)
    assert not staging.must_close_before(B)


def test_a_second_push_and_a_pull_need_the_exchange_closed():
    staging = Staging()
    assert not staging.stage(A, wants_value=False)
    assert staging.must_close_before(A)
    assert staging.needs(A)
    assert not staging.needs(B)


def test_a_static_script_closes_at_once_until_its_keys_come_round():
    staging = Staging()
    for key in (A, B, C):
        assert staging.stage(key, wants_value=True)
        staging.closed()
    for _ in range(3):
        assert [staging.stage(key, wants_value=True) for key in (A, B, C)] == [False, False, True]
        staging.closed()


def test_a_static_script_with_a_new_key_still_closes():
    staging = Staging()
    for _ in range(3):
        assert staging.stage(A, wants_value=True)
        staging.closed()
    assert staging.stage(B, wants_value=True)
