"""How a test ends a training script at an epoch that it does not know beforehand."""

import elastic_ps


def last_epoch(folder, epoch, limit, ahead=2):
    """The last epoch that all workers make; None while it is open.

    The chief names it two ahead once the test has written FOLDER/finish: nobody can be there yet, since every step of
    the epoch between needs the chief's push; where it does not, `ahead` must be more. `limit` names it from the start.
    """
    path = folder / "last_epoch"
    if elastic_ps.is_chief() and not path.exists():
        if limit is not None:
            path.write_text(str(limit))
        elif (folder / "finish").exists():
            path.write_text(str(epoch + ahead))
    return int(path.read_text() or "-1") if path.exists() else None
