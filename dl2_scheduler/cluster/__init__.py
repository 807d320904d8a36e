"""What every policy and every backend agree on: jobs, nodes, snapshots, allocations. Pure."""
