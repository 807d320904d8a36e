"""This package deals with the API server: it watches objects, reads them, and writes at a pace."""
