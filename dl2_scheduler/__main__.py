"""This is `dl2`, as `python -m dl2_scheduler` too. What takes time to import is imported by its `main`."""

from elastic_ps.system.last_resort import interruptible


def main() -> None:
    """Run `dl2`; see `dl2_scheduler.cli`."""
    with interruptible():
        from dl2_scheduler import cli
    cli.main()


if __name__ == "__main__":
    main()
