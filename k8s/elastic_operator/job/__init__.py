"""One ElasticJob: its document, its pods, its coordinator's report, and what it needs next. Pure."""
