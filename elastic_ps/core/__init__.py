"""Pure parts that every room shares: blocks, configurations, data order, errors, codec."""
