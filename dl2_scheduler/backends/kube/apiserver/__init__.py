"""Dealings with the API server: requests, watches, objects as they are read, paced writes."""
