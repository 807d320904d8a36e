"""The MXNet adapter."""
