"""This package says what nodes are made of, how they are linked, and where tasks lie on them."""
