"""Completing what is typed in a shell: a script for it, and names that the server knows.

It must never be in the way: without a server, or with one that is slow, it offers nothing and says nothing.
Names are written by others and land in a shell, so only those that are plain words are offered.
"""

from __future__ import annotations

import re
from enum import StrEnum

from cli.client import Client
from cli.errors import CliError

VARIABLE = "_PUNCTUAL_COMPLETE"
PATIENCE_SECONDS = 0.5
MOST_NAMES = 50
_PLAIN = re.compile(r"[\w.@%+=,/-]+", re.ASCII)

# The shell hands over the command as it was typed: punctual, ./punctual or a path to it.
_SCRIPTS = {
    "bash": """\
_punctual_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" \\
        VARIABLE=complete_bash "$1" 2>/dev/null ) )
}
complete -o default -F _punctual_completion punctual ./punctual
""",
    "zsh": """\
#compdef punctual
_punctual_completion() {
    eval "$(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" VARIABLE=complete_zsh "${words[1]}" 2>/dev/null)"
}
compdef _punctual_completion punctual ./punctual
""",
    "fish": """\
function __punctual_complete
    set -lx VARIABLE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    set -l typed (commandline -opc)
    $typed[1] 2>/dev/null
end
complete --command punctual --no-files --condition "__punctual_complete is-args" \\
    --arguments "(__punctual_complete get-args)"
""",
}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def script_for(shell: Shell) -> str:
    return _SCRIPTS[shell.value].replace("VARIABLE", VARIABLE)


def job_names(incomplete: str) -> list[str]:
    try:
        with Client(timeout_seconds=PATIENCE_SECONDS) as client:
            found = client.jobs(search=incomplete or None, limit=MOST_NAMES)
    except CliError:
        return []
    names = [job.name for job in found if job.name.startswith(incomplete) and _PLAIN.fullmatch(job.name)]
    return list(dict.fromkeys(names))
