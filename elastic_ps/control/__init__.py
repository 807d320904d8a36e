"""This package is the way to a coordinator, from any program: channels, the job token, message conversion."""
