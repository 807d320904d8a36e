"""This package decides what workers draw and wait for together: batches of `async` and `ssp` jobs, and barriers."""
