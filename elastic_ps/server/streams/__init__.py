"""Streams bring blocks to their next owners and values to shadow workers, beside training."""
