"""`python -m keepfast` is the `keepfast` command."""

from keepfast.entry import main

main()
