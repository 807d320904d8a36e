"""This package copies blocks to their next owners, and values to shadow workers, while training goes on."""
