"""The elastic data order, as a training script iterates over it."""
