"""This package reads the ElasticJob document that a user submits, here and on Kubernetes."""
