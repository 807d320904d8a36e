"""`make demo-cluster` runs eight jobs of three kinds on this machine, under DRF and under a policy that was learnt."""
