"""The graph scheduler's agents learn here: by a planner's lessons, from rewards, and as their paper has it."""
