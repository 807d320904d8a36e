"""This package asks a live cluster's placement policy, and checks what it answers."""
