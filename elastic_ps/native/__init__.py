"""This package has the few loops that Python cannot do at memory speed, in C, and the threads that run them.

Built by pip where there is a compiler (pyproject.toml); without it numpy does the same, bit by bit, and slower.
"""
