"""Update rules that fail, for servers to load."""

from elastic_ps.optimizers import Rule


class RaisesWhenMade(Rule):
    def __init__(self):
        raise ValueError("no luck today")

    def states(self, dtype):
        return ()

    def update(self, value, gradient, states, count, hyper):
        pass


class RaisesInTheSecondUpdate(Rule):
    def states(self, dtype):
        return ()

    def update(self, value, gradient, states, count, hyper):
        if count == 2:
            raise ArithmeticError("no luck today")
