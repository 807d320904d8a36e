"""Chic (IWQoS 2019) decides here: a network that gives out one task at a time, woken by events, without a framework."""
