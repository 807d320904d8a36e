"""This package says how fast jobs train where their tasks lie: what they share, and what of it each gets."""
