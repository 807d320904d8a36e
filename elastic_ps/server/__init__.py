"""A parameter server holds blocks, applies the optimizer to what workers push, and hands blocks over to others."""
