"""A program beside the scheduler learns in dreams of a live cluster, which it draws from that cluster's history."""
