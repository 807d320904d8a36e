"""This package says where tasks go: rules that look at counts of resources, and rules that look at what lies beside."""
