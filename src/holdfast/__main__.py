"""`python -m holdfast` is the `holdfast` command."""

from holdfast.entry import main

main()
