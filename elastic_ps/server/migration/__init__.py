"""Blocks move from one server to another while training goes on (docs/protocol.md, "A plan")."""
