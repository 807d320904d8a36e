"""Explore the hard cases, or one scope: `python -m tests.protocol_model [cases [TEXT] | rules | OPTION=VALUE ...]`."""

import sys

from tests.protocol_model.explore import explore
from tests.protocol_model.scopes import CASES, NEEDED


def main(arguments: list[str]) -> int:
    """Print a line for each exploration; return 1 if one that should hold does not."""
    if arguments[:1] == ["rules"]:
        for rules, scope in NEEDED.items():
            outcome = explore(f"{scope} without={rules}")
            print(
                f"{rules} | {scope} | {outcome.verdict} | {outcome.states:,} | {outcome.actions} | {outcome.broken}",
                flush=True,
            )
        return 0
    if arguments and arguments[0] != "cases":
        outcome = explore(" ".join(arguments))
        print(outcome.text, end="")
        return int(outcome.verdict != "HOLDS")
    failed = False
    for case, scopes in CASES.items():
        for scope in scopes:
            if all(text in f"{case} {scope}" for text in arguments[1:]):
                outcome = explore(scope)
                failed |= outcome.verdict != "HOLDS"
                print(
                    f"{case} | {scope} | {outcome.verdict} | {outcome.states:,} | {outcome.seconds:.0f} s", flush=True
                )
                if outcome.broken:
                    print(outcome.text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
