"""This package decides what one ElasticJob needs next, from its document, pods and coordinator's report. Pure."""
