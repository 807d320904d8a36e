"""This package has stand-ins that tests use, of this project and of those who build on it."""
