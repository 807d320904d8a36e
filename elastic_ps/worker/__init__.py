"""The worker's side of the data plane, and the elastic data order."""
