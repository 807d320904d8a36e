"""Public traces of real clusters, made into traces of ours: one file a format, and the rules for what they lack."""
