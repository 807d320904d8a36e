"""This package runs jobs as pods of Kubernetes: it binds them and writes their counts; the operator does the rest."""
