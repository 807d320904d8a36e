"""This package is the data plane: frames, and connections that carry them."""
