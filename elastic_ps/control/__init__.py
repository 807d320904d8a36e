"""The control plane, as seen from any node: channels to the coordinator, the job token, message conversion."""
