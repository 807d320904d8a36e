"""What happens to a job of the world, and when: drawn from a seed, waited for, brought about, and counted."""
