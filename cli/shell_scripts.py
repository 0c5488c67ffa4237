"""What a shell reads to have words completed: it hands over those that were typed, and shows what it is answered.

Where nothing is answered the shell offers files. It calls the command as that was typed: by its name or by a path.
"""

from __future__ import annotations

from enum import StrEnum

from cli.completion import ASKED

_SCRIPTS = {
    "bash": """\
_punctual_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( "${1/#~/$HOME}" ASKED bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null ) )
}
complete -o default -F _punctual_completion punctual ./punctual
""",
    "zsh": """\
#compdef punctual
_punctual_completion() {
    local -a described
    local line
    for line in "${(@f)$(${~${(Q)words[1]}} ASKED zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        # A colon parts a word from what is said of it.
        [[ -z $line ]] || described+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    compset -P '--*='
    if (( $#described )); then
        _describe -V command described
    else
        _files
    fi
}
if [[ $funcstack[1] == _punctual ]]; then
    _punctual_completion "$@"
else
    compdef _punctual_completion punctual ./punctual
fi
""",
    "fish": """\
function __punctual_complete
    set -l typed (commandline -opc)
    set -l called (string replace --regex '^~/' ~/ -- $typed[1])
    set -l answered ($called ASKED fish $typed[2..-1] (commandline -ct) 2>/dev/null)
    if set -q answered[1]
        string join -- \\n $answered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command punctual --no-files --keep-order --arguments "(__punctual_complete)"
""",
}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def script_for(shell: Shell) -> str:
    return _SCRIPTS[shell.value].replace("ASKED", ASKED)
