"""elasticrun: starts roles as processes."""
