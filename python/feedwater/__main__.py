"""The command line program: ``python -m feedwater COMMAND``, such as ``doctor``, ``demo`` or ``explain``."""

import sys
from typing import NoReturn

from . import _feedwater


def main() -> NoReturn:
    """Runs the command that the arguments name, and ends the process."""
    sys.exit(_feedwater.main([sys.executable, "-m", "feedwater"], sys.argv[1:]))


if __name__ == "__main__":
    main()
