"""This package runs many clusters at once, compiled, while policies for placement learn."""
