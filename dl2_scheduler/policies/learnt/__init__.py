"""Policies that networks decide: DL2 as we learn it, and as the paper has it. Inference only, without a framework."""
