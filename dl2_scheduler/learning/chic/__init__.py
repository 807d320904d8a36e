"""Chic (IWQoS 2019) learns here, by the modified cross-entropy method."""
