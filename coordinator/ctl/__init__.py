"""The program `elasticctl`: what operators ask of running jobs, and how the answers are printed."""
