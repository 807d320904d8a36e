"""This package simulates clusters in which a job's speed depends on where its tasks lie, and on what lies beside them.

No policy may import it: what it knows is the truth, which a scheduler only meets in measured speeds.
"""
