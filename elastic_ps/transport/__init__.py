"""The data plane: frames, and connections that carry them."""
