"""This module has every error that the runtime raises.

ElasticError
├── ConfigurationError   what the caller asked for cannot be: fix the call (not retryable)
├── CheckpointError      no checkpoint can be read or written there (not retryable)
├── StorageError         the storage of checkpoints does not do what it was asked for (retryable)
├── RuleFailed           a user's update rule raised; another try would, too (not retryable)
├── ProtocolError        a peer broke the contract: a bug or a foreign process (not retryable)
├── Refused              a peer will not serve this request now; `reason` says why (retryable)
├── PeerLost             an exchange with a peer failed (retryable once a new configuration is in force)
├── NotNow               something outside the job, which may pass, keeps it from running here (retryable)
├── CoordinatorLost      the coordinator does not answer (retryable: it is restarted from its journal)
└── JobEnded             the job was stopped, failed or restarts; `status` is the process's exit status
"""

from elastic_ps.core.script_hints import hinted

EXIT_RESTART = 75
"""This exit status asks the launcher to start this role again: the job goes back to its checkpoint."""

EXIT_LATER = 69
"""With this exit status a coordinator or a launcher ends that something outside its job keeps from running, and that
may pass: a full disk, a port that is taken. Started again later it goes on."""


class ElasticError(Exception):
    """An `ElasticError` is any error of the tree above; its text ends with the hints of the script's adapter."""

    def __str__(self) -> str:
        return hinted(super().__str__())


class ConfigurationError(ElasticError):
    """The caller asked for something that cannot be done; the message says how to mend it."""


class CheckpointError(ElasticError):
    """No checkpoint can be read or written there; the message says why."""


class StorageError(ElasticError):
    """The storage that checkpoints lie on does not do what it was asked for; the message says what, and why."""


class RuleFailed(ElasticError):
    """An update rule raised, a user's or by the numbers that it was given; the message names it and what it did."""


class ProtocolError(ElasticError):
    """A peer has sent a message that no correct peer sends."""


class Refused(ElasticError):
    """A peer refuses a request, with a reason."""


class PeerLost(ElasticError):
    """The connection to a peer has broken."""

    def __init__(self, peer: str, reason: str):
        super().__init__(f"lost {peer}: {reason}")
        self.peer = peer
        self.reason = reason


class CoordinatorLost(ElasticError):
    """The coordinator does not answer."""


class NotNow(ElasticError):
    """A job or its coordinator cannot run here at present: no room on the disk, a port that is taken. It may pass."""


class JobEnded(ElasticError):
    """The job has ended for this node."""

    def __init__(self, reason: str, status: int):
        super().__init__(reason)
        self.reason = reason
        self.status = status
