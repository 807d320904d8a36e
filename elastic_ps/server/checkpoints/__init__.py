"""A server writes its blocks into a checkpoint beside training, and reads them back."""
