"""`python -m elastic_ps.launch` is `elasticrun`."""

from elastic_ps.launch.cli import main

main()
