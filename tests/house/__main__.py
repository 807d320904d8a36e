"""Say what breaks the rules of the house: `python -m tests.house [--measures] [FOLDER or FILE ...]`."""

import sys

from tests.house.docstrings import complaints
from tests.house.measures import measures
from tests.house.names import duplicates
from tests.house.sources import FOLDERS, sources


def main(arguments: list[str]) -> int:
    """Print each breach on a line of its own; return how the process ends."""
    under = [each for each in arguments if not each.startswith("-")]
    found = [complaint for source in sources(under or FOLDERS) for complaint in complaints(source)]
    found += duplicates(sources(FOLDERS))
    if "--measures" in arguments:
        for what, value in measures(list(sources(under or FOLDERS))).items():
            print(f"{what}: {value}")
        print(f"breaches: {len(found)}")
        return 0
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
