"""Jobs as pods of Kubernetes: the scheduler binds them and writes each job's counts; the operator does the rest."""
