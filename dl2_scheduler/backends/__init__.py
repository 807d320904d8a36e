"""Where jobs really run, each behind `dl2_scheduler.cluster`'s `Cluster` and `JobDesk`."""
