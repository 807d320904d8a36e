"""Documentation, and `generate`, which writes into it what the code says."""
