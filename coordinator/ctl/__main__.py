"""This is `elasticctl`, as `python -m coordinator.ctl` too. What takes time to import is imported by its `main`."""

from elastic_ps.system.last_resort import interruptible


def main() -> None:
    """Run `elasticctl`; see `coordinator.ctl.cli`."""
    with interruptible():
        from coordinator.ctl import cli
    cli.main()


if __name__ == "__main__":
    main()
