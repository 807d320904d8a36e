"""Blocks move from one server to another while training goes on (docs/reference/protocol.md, "A plan")."""
