"""`puorl completion`: print a script that completes commands in a shell."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from puorl.cli.main import COMMANDS, load_command, parsing


@dataclass(frozen=True)
class Completion:
    """Print a script with which a shell completes commands, options and choices.

    Write it again after an update of puorl.

    Examples:
      puorl completion bash > ~/.local/share/bash-completion/completions/puorl
      puorl completion zsh > "${fpath[1]}/_puorl"
      puorl completion fish > ~/.config/fish/completions/puorl.fish
      source <(puorl completion bash)
    """

    shell: tyro.conf.Positional[Annotated[Literal["bash", "zsh", "fish"], tyro.conf.arg()]]
    """The shell that will read the script."""

    def run(self) -> None:
        """Let the option parser write the script of all commands, and print it."""
        commands = {name: load_command(name) for name in COMMANDS}
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script"
            try:
                tyro.extras.subcommand_cli_from_dict(
                    commands,
                    prog="puorl",
                    args=["--tyro-write-completion", self.shell, str(script)],
                    config=parsing(),
                )
            except SystemExit:  # the parser ends the process after writing
                pass
            sys.stdout.write(script.read_text(encoding="utf-8"))
