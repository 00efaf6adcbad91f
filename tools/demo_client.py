"""The part of the demo that shows the real client at work, where the tests have fetched it: a scripted model on loopback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clients.claude.bench import Bench
from tests.clients.claude.client import Client, fetched
from tests.clients.claude.endpoint import call, say, use


def show(folder: Path, tell: Callable[[str], None]) -> bool:
    """Let the client remove a folder, and bring it back; False if there is no client."""
    client = fetched()
    if client is None:
        return False
    tell("In the real client (a scripted model, no network): a turn that ends in `rm -rf src`.")
    bench = Bench(folder, client)
    try:
        _play(bench, client)
    finally:
        bench.close()
    return True


def _play(bench: Bench, client: Client) -> None:
    bench.put("src/cart.py", "def total(prices):\n    return sum(prices)\n")
    print("$ keepfast install claude")
    bench.keepfast("install", "claude")
    bench.script(
        call(use("Write", file_path=bench.path("src/tax.py"), content="RATE = 0.19\n")),
        call(use("Bash", command="rm -rf src", description="start afresh")),
        say("I removed src to start afresh."),
    )
    turn = bench.run("add a tax to the cart")
    print("$ claude -p 'add a tax to the cart'")
    print(f"claude {client.version}: {turn.result.get('result')}")
    made = bench.settle()
    print("$ keepfast list")
    print(bench.keepfast("list").stdout, end="")
    saved = next(one for one in made if one["trigger"] == "before_command")
    print(f"$ keepfast restore {saved['version']} -y")
    print(bench.keepfast("restore", saved["version"], "-y").stdout, end="")
    kept = sorted(path.name for path in (bench.project / "src").iterdir())
    assert kept == ["cart.py", "tax.py"], kept
    print(f"src is back: {', '.join(kept)}")
