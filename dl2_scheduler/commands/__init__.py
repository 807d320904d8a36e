"""What `dl2` does, one file a command. Everything else of the package is below; nothing of it imports this."""
