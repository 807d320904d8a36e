"""A policy drives a cluster slot by slot; people look at it and talk to it."""
