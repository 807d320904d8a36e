"""This module has the names that ElasticJobs, their pods and their labels bear in a cluster."""

GROUP, VERSION, PLURAL, KIND = "dl2.scheduler", "v1alpha1", "elasticjobs", "ElasticJob"
JOB_LABEL, ROLE_LABEL, NODE_LABEL = f"{GROUP}/job", f"{GROUP}/role", f"{GROUP}/node"
JOINED_LABEL = f"{GROUP}/joined"
"""Of a pod whose node has belonged to the job's configuration: "true"."""
COORDINATOR, SERVER, WORKER = "coordinator", "server", "worker"
"""The roles of a job's pods, as `ROLE_LABEL` says them."""
