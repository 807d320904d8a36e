"""This package says when the jobs of a live cluster will start and end.

It plays an ensemble of futures, and corrects them by how earlier forecasts did.
"""
