"""What runs on Kubernetes: the chart, the images, the operator."""
