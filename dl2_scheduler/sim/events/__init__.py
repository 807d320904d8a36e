"""Time that events divide is here: jobs end when their work is done, and policies may be woken then."""
