"""This check holds the house's rules that no linter knows: names that mean one thing, docstrings that are sentences."""
