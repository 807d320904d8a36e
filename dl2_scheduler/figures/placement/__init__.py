"""This package compares placement policies in the placement papers' settings."""
