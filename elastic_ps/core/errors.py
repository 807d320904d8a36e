"""Every error that the runtime raises.

ElasticError
├── ConfigurationError   what the caller asked for cannot be: fix the call (not retryable)
├── CheckpointError      no checkpoint can be read or written there (not retryable)
├── ProtocolError        a peer broke the contract: a bug or a foreign process (not retryable)
├── Refused              a peer will not serve this request now; `reason` says why (retryable)
├── PeerLost             an exchange with a peer failed (retryable once a new configuration is in force)
├── CoordinatorLost      the coordinator does not answer (retryable: it is restarted from its journal)
└── JobEnded             the job was stopped, failed or restarts; `status` is the process's exit status
"""

EXIT_RESTART = 75
"""Exit status that asks the launcher to start this role again: the job goes back to its checkpoint."""


class ElasticError(Exception):
    """Base of the tree above."""


class ConfigurationError(ElasticError):
    """What the caller asked for cannot be done; the message says how to mend it."""


class CheckpointError(ElasticError):
    """No checkpoint can be read or written there; the message says why."""


class ProtocolError(ElasticError):
    """A message that no correct peer sends."""


class Refused(ElasticError):
    """A peer refuses a request, with a reason."""


class PeerLost(ElasticError):
    """The connection to a peer broke."""

    def __init__(self, peer: str, reason: str):
        super().__init__(f"lost {peer}: {reason}")
        self.peer = peer
        self.reason = reason


class CoordinatorLost(ElasticError):
    """The coordinator does not answer."""


class JobEnded(ElasticError):
    """The job has ended for this node."""

    def __init__(self, reason: str, status: int):
        super().__init__(reason)
        self.reason = reason
        self.status = status
