"""`make demo`: an elastic job's life, told live, proved at the end."""
