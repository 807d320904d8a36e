"""This package lets a few running jobs run for a slot in configurations that tell most of speeds, within a budget."""
