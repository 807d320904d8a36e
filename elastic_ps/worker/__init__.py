"""A worker joins a training script to its job: `script` is what the script calls, `wire` speaks with the servers."""
