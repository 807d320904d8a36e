"""What every node does with its coordinator."""
