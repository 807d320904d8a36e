"""What must hold in the world, told by those that share no code with what they judge."""
