"""`keepfast completion`: the completion script for a shell."""

from __future__ import annotations

import click

from keepfast.cli.session import Session, common, write_json

WHERE = {
    "bash": 'Add to ~/.bashrc: eval "$(keepfast completion bash)"',
    "zsh": 'Add to ~/.zshrc: eval "$(keepfast completion zsh)"',
    "fish": "Run once: keepfast completion fish > ~/.config/fish/completions/keepfast.fish",
}


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", metavar="SHELL", type=click.Choice(list(WHERE)))
@common
def completion(session: Session, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from keepfast.cli.root import COMPLETE, NAME, root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, NAME, COMPLETE).source()
    if session.json:
        write_json({"shell": shell, "script": script, "install": WHERE[shell]})
        return
    session.print(script)
