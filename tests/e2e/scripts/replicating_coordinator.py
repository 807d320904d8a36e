"""A coordinator whose blocks have a follower each, for which its command line has no option."""

import sys
from dataclasses import replace

from coordinator import __main__, options

settings = options.settings
options.settings = lambda given: replace(settings(given), replicas=1)

if __name__ == "__main__":
    sys.exit(__main__.main())
