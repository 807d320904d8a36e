"""This package decides who takes part in a job: members, failure detection, deaths, rebuilding after a lost journal."""
