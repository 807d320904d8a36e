"""The names of the rules beside which the judge plays a network, as people read them."""

DRF, PLANNER = "DRF", "planner"
