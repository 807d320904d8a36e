"""This package keeps a launcher's processes: how they start, what they print, and what is done when they end."""
