"""This package is a worker's own model and optimizer, and what members give one another of them."""
