"""`python -m foreshock.daemon.cli` is the console script `foreshock`."""

from foreshock.daemon.cli import main

main()
