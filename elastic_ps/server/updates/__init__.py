"""Pushed gradients become updates of blocks: in step, asynchronously, dense, compressed or by rows."""
