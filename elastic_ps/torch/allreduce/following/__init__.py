"""A worker that joins follows a member here, while the job trains: it is given a copy in portions, then records."""
