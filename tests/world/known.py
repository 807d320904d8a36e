"""Seeds of `make world-ci` that fail, and what is wrong in each. One that is good again has to be taken out."""

KNOWN: dict[int, str] = {}
