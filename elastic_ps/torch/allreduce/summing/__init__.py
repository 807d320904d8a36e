"""A step's gradients are summed over all members here, bucket by bucket."""
