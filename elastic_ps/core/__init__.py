"""What every room shares: blocks, configurations, data order, errors, codec (all pure), the job's token."""
