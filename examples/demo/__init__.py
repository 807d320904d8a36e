"""`make demo` tells an elastic job's life, live, and proves it at the end."""
