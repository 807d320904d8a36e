"""Explore the scopes, the large ones, or what each rule is for: `python -m tests.allreduce_model [large|rules]`."""

import sys
import time

from tests.allreduce_model.model import explore
from tests.allreduce_model.scopes import LARGE, NEEDED, SCOPES


def main(arguments: list[str]) -> int:
    """Print a line for each exploration, and the trace of what is broken; return 1 if a scope does not hold."""
    wrong = False
    scopes = {"rules": NEEDED, "large": LARGE}.get("".join(arguments), SCOPES)
    for name, scope in scopes.items():
        began = time.process_time()
        outcome = explore(scope)
        wrong |= bool(outcome.broken) != (arguments == ["rules"])
        said = f"refuted in {len(outcome.trace)} actions: {outcome.broken}" if outcome.broken else "holds"
        print(f"{name} | {outcome.states:,} states | {said} | {time.process_time() - began:.1f} s", flush=True)
        if outcome.broken and arguments != ["rules"]:
            print("\n".join(outcome.trace))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
