"""`keepfast completion`: the completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from keepfast.cli.root import COMPLETION_VARIABLE, NAME, root
from keepfast.cli.session import Session, common, write_json

INSTALL_HINTS = {
    "bash": 'Add to ~/.bashrc: eval "$(keepfast completion bash)"',
    "zsh": 'Add to ~/.zshrc: eval "$(keepfast completion zsh)"',
    "fish": "Run once: keepfast completion fish > ~/.config/fish/completions/keepfast.fish",
}


@click.command(epilog="\b\n" + "\n".join(INSTALL_HINTS.values()))
@click.argument("shell", metavar="SHELL", type=click.Choice(list(INSTALL_HINTS)))
@common
def completion(session: Session, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, NAME, COMPLETION_VARIABLE).source()
    if session.json:
        write_json({"shell": shell, "script": script, "install": INSTALL_HINTS[shell]})
        return
    session.print(script)
