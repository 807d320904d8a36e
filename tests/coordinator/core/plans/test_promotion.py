"""Who owns a block when a server has died: rule 15 of the protocol's model, case by case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.plans.promotion import Holding, HoldingKind, decide, survivable
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from tests.sweeps import examples

OWNED, LEAVING, COPY, FROZEN = HoldingKind.OWNED, HoldingKind.LEAVING, HoldingKind.COPY, HoldingKind.FROZEN
SERVERS = ("s1", "s2", "s3")


def configuration(number, *blocks, servers=SERVERS):
    """Each block as owner and follower: "s1 s2", "s1": nobody follows."""
    named = [block.split() for block in blocks]
    followers = tuple(servers.index(names[1]) if len(names) > 1 else -1 for names in named)
    return Configuration(
        ConfigId(1, number),
        (Member("w0", Role.WORKER, "h"),),
        tuple(Member(name, Role.SERVER, name) for name in servers),
        tuple(servers.index(names[0]) for names in named),
        followers,
    )


def told(**answers):
    """By node, (kind, version) of block 0; a number: what a worker has seen."""
    return {
        name: (
            Holding(HoldingKind.SEEN, answer, ((0, 1),))
            if isinstance(answer, int)
            else Holding(answer[0], answer[1], ((0, 1),)),
        )
        for name, answer in answers.items()
    }


def decided(chain, dead, promoted=None, **answers):
    """Owner and follower of block 0; None: the checkpoint."""
    names = {server.id for each in chain for server in each.servers}
    decision = decide(chain, chain[-1], {"w0", *names} - set(dead), told(**answers), promoted=promoted)
    if decision.lost:
        return None
    result = decision.configuration
    assert not set(dead) & result.members.keys()
    return result.primary(0), result.follower(0)


ALL = ((0, 1),)
MOVE = (configuration(1, "s1 s2"), configuration(2, "s3 s2"))
SWAP = (configuration(1, "s1 s2"), configuration(2, "s2 s1"))
REFOLLOW = (configuration(1, "s1 s2"), configuration(2, "s1 s3"))
REST = (configuration(1, "s1 s2"),)


@pytest.mark.parametrize(
    ("chain", "dead", "answers", "outcome"),
    [
        (REST, ["s1"], {"s2": (COPY, 5), "w0": 5}, ("s2", None)),
        (REST, ["s1"], {"s2": (COPY, 4), "w0": 5}, None),
        (REST, ["s1", "s2"], {"w0": 5}, None),
        (REST, ["s2"], {"s1": (OWNED, 7), "w0": 6}, ("s1", None)),
        (REST, ["s3"], {"s1": (OWNED, 7), "s2": (COPY, 6), "w0": 7}, ("s1", "s2")),
        # a: a hand-over that is under way arrives by itself
        (MOVE, ["s2"], {"s1": (FROZEN, 5), "s3": (COPY, 5), "w0": 5}, ("s3", None)),
        # b: the new owner has the hand-over
        (MOVE, ["s1"], {"s2": (COPY, 6), "s3": (OWNED, 6), "w0": 6}, ("s3", "s2")),
        # c: the owner in force lives; its version is not compared with anything
        (MOVE, ["s3"], {"s1": (LEAVING, 5), "s2": (COPY, 5), "w0": 6}, ("s1", "s2")),
        (MOVE, ["s3"], {"s1": (OWNED, 5), "s2": (COPY, 5), "w0": 5}, ("s1", "s2")),
        # d: the highest copy, be it the old follower's or the new one's
        (MOVE, ["s1"], {"s2": (COPY, 5), "s3": (COPY, 5), "w0": 5}, ("s2", None)),
        (MOVE, ["s3"], {"s1": (FROZEN, 5), "s2": (COPY, 6), "w0": 6}, ("s2", None)),
        (REFOLLOW, ["s1"], {"s2": (COPY, 6), "s3": (COPY, 5), "w0": 6}, ("s2", None)),
        (REFOLLOW, ["s1"], {"s2": (COPY, 5), "s3": (COPY, 6), "w0": 6}, ("s3", None)),
        (REFOLLOW, ["s1"], {"s2": (COPY, 6), "s3": (COPY, 6), "w0": 6}, ("s3", None)),
        (SWAP, ["s2"], {"s1": (FROZEN, 5), "w0": 5}, ("s1", None)),
        (SWAP, ["s2"], {"s1": (COPY, 5), "w0": 6}, None),
    ],
)
def test_owner_of_a_block(chain, dead, answers, outcome):
    assert decided(chain, dead, **answers) == outcome


@pytest.mark.parametrize(
    ("chain", "dead", "answers", "outcome"),
    [
        (REST, ["s1"], {}, "s2"),
        (REST, ["s1", "w1"], {}, "s2"),
        (REST, ["s1"], {"w0": 0}, None),
        (REST, ["s1", "s2"], {}, None),
        ((configuration(1, "s1"),), ["s1"], {}, None),
        ((configuration(1, "s1 s2"), configuration(2, "s3 s2")), ["s1"], {}, "s2"),
        (REFOLLOW, ["s1"], {}, None),
    ],
)
def test_block_without_values_belongs_to_its_follower(chain, dead, answers, outcome):
    names = {"w0", *SERVERS} - set(dead)
    decision = decide(chain, chain[-1], names, told(**answers), young=range(1))
    assert (None if decision.lost else decision.configuration.primary(0)) == outcome
    assert decision.promoted == (() if outcome is None else ALL)
    assert decide(chain, chain[-1], names, told(**answers)).lost == (0,), "it is as old as the configuration"


def test_copies_that_no_configuration_names_do_not_count():
    assert decided(REST, ["s1", "s2"], s3=(COPY, 9), w0=5) is None


def test_promoted_server_stays_though_it_has_not_heard_of_it():
    chain = (*REFOLLOW, configuration(3, "s2"))
    assert decided(chain, ["s1"], promoted=ALL, s2=(COPY, 6), s3=(COPY, 6), w0=6) == ("s2", None)
    assert decided(chain, ["s1"], promoted=ALL, s2=(OWNED, 7), s3=(COPY, 6), w0=7) == ("s2", None)


def test_promoted_are_blocks_whose_owner_has_them_at_once():
    chain = (configuration(1, "s1 s2", "s2 s3", "s3 s1"),)
    answers = {"s2": (Holding(COPY, 5, ((0, 1),)), Holding(OWNED, 5, ((1, 1),))), "s3": (Holding(OWNED, 5, ((2, 1),)),)}
    first = decide(chain, chain[-1], {"w0", "s2", "s3"}, answers)
    assert first.promoted == ((0, 1),)
    # a further death keeps them, whether their owner has heard of it or not, while it stays the owner
    chain = (*chain, first.configuration)
    assert decide(chain, chain[-1], {"s2", "s3"}, answers, promoted=first.promoted).promoted == ((0, 1),)
    heard = answers | {"s2": (Holding(OWNED, 6, ((0, 2),)),)}
    assert decide(chain, chain[-1], {"s2", "s3"}, heard, promoted=first.promoted).promoted == ((0, 1),)
    assert decide(chain, chain[-1], {"s2", "s3"}, heard).promoted == ()


def test_copies_of_all_configurations_since_the_one_in_force_count():
    chain = (configuration(1, "s1 s2"), configuration(2, "s3 s2"), configuration(3, "s3"))
    assert decided(chain, ["s1", "s3"], promoted=ALL, s2=(COPY, 6), w0=6) == ("s2", None)


def test_server_that_was_to_leave_stays_with_what_it_owns_again():
    chain = (configuration(1, "s1 s2"), configuration(2, "s3 s2", servers=("s2", "s3")))
    assert decided(chain, ["s3"], s1=(OWNED, 5), s2=(COPY, 5), w0=5) == ("s1", "s2")


def test_blocks_born_since_are_judged_by_the_configuration_that_has_them():
    chain = (configuration(1, "s1 s2"), configuration(2, "s1 s2", "s2 s3"))
    answers = {"s3": (Holding(COPY, 2, ((1, 1), (9, 5))),), "s1": (Holding(OWNED, 2, ((0, 1),)),)}
    decision = decide(chain, chain[-1], {"w0", "s1", "s3"}, answers)
    assert (decision.configuration.primary(1), decision.configuration.follower(0)) == ("s3", None)


def test_survivable_is_what_somebody_is_named_for():
    assert survivable(REST, {"s2"})
    assert not survivable(REST, {"s3"})
    assert survivable(MOVE, {"s3"})
    assert not survivable([configuration(1, "s1 s2", "s2")], {"s1"})
    assert not survivable([Configuration(ConfigId(1, 1), (), (Member("s1", Role.SERVER, "h"),), (0,))], {"s1"})


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.permutations(SERVERS), min_size=1, max_size=3),
    st.sampled_from(SERVERS),
    st.dictionaries(st.sampled_from(SERVERS), st.tuples(st.sampled_from([OWNED, COPY]), st.integers(0, 3))),
    st.integers(0, 3),
)
def test_chosen_owner_lives_and_has_what_was_seen(orders, dead, answers, seen):
    chain = [configuration(number, f"{order[0]} {order[1]}") for number, order in enumerate(orders)]
    outcome = decided(chain, [dead], w0=seen, **answers)
    if outcome is None:
        return
    owner, follower = outcome
    assert owner != dead != follower
    assert owner != follower
    if dead == chain[0].primary(0) and dead == chain[-1].primary(0):
        assert answers[owner][1] >= seen
        assert follower is None
