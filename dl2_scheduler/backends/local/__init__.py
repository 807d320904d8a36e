"""Jobs as processes of this machine: each an `elasticrun` in a session of its own, which outlives `dl2 serve`."""
