"""`make demo-cluster` runs six jobs of three kinds on this machine, under DRF and under a policy learnt from them."""
