"""Plans change the configuration of a job: how one is formed, assigned, armed, committed or cancelled. Pure."""
