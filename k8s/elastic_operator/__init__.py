"""The operator: keeps the pods of every ElasticJob as its spec and its coordinator want them."""
