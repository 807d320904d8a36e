"""This package is the policy as the paper has it: its network, and how it fills a slot. Inference only."""
