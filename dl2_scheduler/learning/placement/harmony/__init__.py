"""This package learns where tasks go as Harmony does (INFOCOM 2019): its networks, its reward model, its experience."""
