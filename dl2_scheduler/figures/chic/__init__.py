"""The figures of Chic (IWQoS 2019) are drawn here, from runs of our own."""
