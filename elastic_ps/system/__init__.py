"""This package has what every program needs of its machine: files, processes, signals, terminals, logs, storage."""
