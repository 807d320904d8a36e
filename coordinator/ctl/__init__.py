"""The program `elasticctl` asks running jobs for what operators want, and prints the answers."""
