"""Generate the protobuf code beside its `.proto` files; `--check` fails when what is committed is stale."""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def generate(target: Path) -> list[Path]:
    """Compile every `.proto` of this folder into `target`/protos and return the files made."""
    from grpc_tools import protoc

    arguments = [
        "protoc",
        f"-I{HERE.parent}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
    ]
    if protoc.main(arguments + [str(path) for path in sorted(HERE.glob("*.proto"))]) != 0:
        raise SystemExit("protoc failed: see its message above")
    return sorted(path for path in (target / "protos").iterdir() if "_pb2" in path.name)


def main() -> None:
    """Regenerate, or with `--check` compare."""
    if "--check" not in sys.argv[1:]:
        generate(HERE.parent)
        return
    with tempfile.TemporaryDirectory() as folder:
        for made in generate(Path(folder)):
            committed = HERE / made.name
            if not committed.exists() or committed.read_bytes() != made.read_bytes():
                raise SystemExit(f"protos/{made.name} is stale: run `make protos` and commit the result")


if __name__ == "__main__":
    main()
