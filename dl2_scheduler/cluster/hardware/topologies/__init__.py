"""This package builds networks of clusters: a single switch, fat-trees, VL2 and BCube."""
