"""The policies: each file holds one rule that decides which job gets how many workers and servers."""
