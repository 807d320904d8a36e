"""`make demo-cluster`: six real jobs of three kinds on this machine, under DRF and under a policy learnt from them."""
