"""This package says where jobs really run, each backend behind `Cluster` and `JobDesk` of `dl2_scheduler.cluster`."""
