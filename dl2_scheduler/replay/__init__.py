"""This package reads what a live cluster did from its history.

It finds speeds and jobs for the simulator, and asks policies again about recorded slots.
"""
