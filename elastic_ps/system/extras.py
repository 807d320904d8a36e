"""This module says by which extra of ours a package is installed that is missing."""

_EXTRAS = {
    "figures": ("matplotlib",),
    "gym": ("gymnasium",),
    "kubernetes": ("kopf", "kubernetes", "urllib3"),
    "learning": ("tensorboard", "torch"),  # of our programs only what learns imports torch
    "scheduler": ("numba", "pydantic", "scipy", "yaml"),
}
"""Of each extra in pyproject.toml: what our programs import of its packages."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra; our packages are not on PyPI, where somebody could take the name."""
    return f"pip install '/path/to/checkout[{extra}]'"


def missing_package(error: Exception) -> str | None:
    """Return a sentence that says what to install, or None where no package of an extra is missing."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package = (error.name or "").partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if package in packages:
            return f"this needs the package {package}, which is not installed: {how_to_install(extra)}"
    return None
