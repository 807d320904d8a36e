"""This module names the errors of a system that are no program's fault and may pass: whoever meets one tries later."""

import errno

MACHINE_LACKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
"""Numbers of the errors of a machine on which a disk is full, or memory, processes or open files have run out."""

MAY_PASS = MACHINE_LACKS | {errno.EIO, errno.EROFS, errno.ESTALE}
"""Those, and what a disk says that has failed, or is read-only since."""
