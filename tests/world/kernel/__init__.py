"""What a kernel gives processes: threads, locks, clocks, event loops, memory and disks, over one seeded scheduler."""
