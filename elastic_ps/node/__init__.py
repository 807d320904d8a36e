"""This package is what every node does with its coordinator: it registers, listens, answers and reports."""
