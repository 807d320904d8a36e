"""Who imports this module ignores SIGTERM from then on: a fork server does, which outlives all but its worker.

Where it ended, its children would seem to have ended, too. It imports nothing that a worker's script does.
"""

from elastic_ps.system.process.signals import ignore_sigterm

ignore_sigterm()
