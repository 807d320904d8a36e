"""This package plays placements that were measured on real nodes."""
