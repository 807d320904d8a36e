"""This package runs jobs as processes of this machine, by `elasticrun`, and knows them again."""
