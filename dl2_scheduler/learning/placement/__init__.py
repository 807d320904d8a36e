"""This package learns where tasks go: models of speeds that are fitted to measurements, and policies."""
