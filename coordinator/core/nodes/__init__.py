"""Who takes part in a job: membership, failure detection, deaths, and how a lost journal is rebuilt. Pure."""
