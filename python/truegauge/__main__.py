"""`python -m truegauge`: the command, found beside this interpreter."""

import os
import sys
import sysconfig

NAME = "truegauge"


def command() -> str | None:
    """Returns the path of the installed program, or None when the package came without it."""
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders.append(os.path.join(here, "truegauge.data", "scripts"))
    for folder in folders:
        path = os.path.join(folder, NAME)
        if os.access(path, os.X_OK):
            return path
    return None


def main() -> None:
    """Becomes the program."""
    path = command()
    if path is None:
        sys.exit(f"the program `{NAME}` is not installed beside {sys.executable}: run `make build`")
    os.execv(path, [path, *sys.argv[1:]])  # noqa: S606 - our own program, no shell


if __name__ == "__main__":
    main()
