"""Connections of the world, and what production speaks over them: frames, gRPC, gloo and its store."""
