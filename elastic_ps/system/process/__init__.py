"""This package has what a program needs of its own process, and of those that it starts."""
