"""This package coordinates one elastic job: it runs the scaling protocol of DL2 (section 5)."""
