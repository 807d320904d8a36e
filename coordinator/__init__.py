"""The coordinator of one elastic job: runs the scaling protocol of DL2 (section 5)."""
