"""`python -m holdfast` is the command line."""

from holdfast.frontends.cli import main

main()
