"""The scopes that are explored, and for each rule one in which it is missed."""

from tests.allreduce_model.job import Scope


def _without(rule: str, **scope: int | bool) -> Scope:
    return Scope(without=frozenset({rule}), **scope)  # type: ignore[arg-type]


SCOPES = {
    "two workers, one dies": Scope(),
    "two workers, one joins, nobody dies": Scope(joins=True, crashes=0),
    "two workers, one leaves, nobody dies": Scope(leaves=1, crashes=0),
    "one worker, one joins, one dies": Scope(members=1, joins=True, steps=2, crashes=1),
    "one worker, one joins, its stream breaks off": Scope(members=1, joins=True, crashes=0, cuts=1),
    "two workers, the chief leaves, one dies": Scope(leaves=0, crashes=1),
}

LARGE = {
    "two workers, one joins, one dies, one step": Scope(joins=True, steps=1, crashes=1),
    "two workers, one joins, one dies": Scope(joins=True, crashes=1),
    "three workers, two die": Scope(members=3, crashes=2),
}
"""More states than a test should try: `python -m tests.allreduce_model large`."""

NEEDED = {
    "agree_first": _without("agree_first", members=3, steps=1),
    "nobody_goes_back": _without("nobody_goes_back", members=3, steps=1),
    "report_settled": _without("report_settled"),
    "settle_what_was_held": _without("settle_what_was_held", members=3, crashes=2, steps=1),
    "adopt_the_rest": _without("adopt_the_rest", joins=True, crashes=0),
    "death_builds_on_armed": _without("death_builds_on_armed", joins=True, steps=1),
    "shadows_do_not_go_on_alone": _without("shadows_do_not_go_on_alone", members=1, joins=True),
}
