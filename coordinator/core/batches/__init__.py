"""What workers draw and wait for together: batches of `async` and `ssp` jobs, and barriers. Pure."""
