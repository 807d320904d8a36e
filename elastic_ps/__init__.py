"""Elastic parameter-server training."""
