"""This package begins the tasks of jobs, and keeps each to its share of the machine."""
