"""What a live cluster did, from its history: speeds and jobs for the simulator, decisions asked again."""
