"""The servers' side of a worker has its connections, exchanges, arriving parameters and membership of the job."""
