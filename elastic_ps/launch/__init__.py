"""This package is `elasticrun`: it starts the processes of a job on this machine, or one node of a job elsewhere."""
