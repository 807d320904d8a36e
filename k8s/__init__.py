"""This runs on Kubernetes: the chart, the images, the operator, and what it shares with the scheduler."""
