"""Rules that events wake are here, as Chic is compared with: greedy ones, and one that plans by rolling out."""
