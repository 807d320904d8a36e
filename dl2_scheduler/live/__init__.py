"""This package lets a policy drive a cluster slot by slot, while people look at it and talk to it."""
