"""This package holds what every program agrees on: blocks, configurations, the data order, optimizers, errors. Pure."""
