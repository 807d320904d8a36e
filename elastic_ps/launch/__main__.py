"""This is `elasticrun`, as `python -m elastic_ps.launch` too. What takes time to import is imported by its `main`."""

from elastic_ps.system.last_resort import interruptible


def main() -> None:
    """Run `elasticrun`; see `elastic_ps.launch.cli`."""
    with interruptible():
        from elastic_ps.launch import cli
    cli.main()


if __name__ == "__main__":
    main()
