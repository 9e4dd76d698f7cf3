"""The functions that shells call on a tab. They ask `windlass` itself, so they need no change when verbs do."""

from __future__ import annotations

_BASH = r"""# Completion of windlass for bash.
_windlass_complete() {
    local how="" line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $how ]]; then how=$line; else COMPREPLY+=("$line"); fi
    done < <(_WINDLASS_COMPLETE=bash "${1/#\~\//$HOME/}" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    compopt -o nosort 2>/dev/null
    case $how in
        nospace) compopt -o nospace 2>/dev/null ;;
        paths) compopt -o filenames 2>/dev/null ;;
        files) compopt -o default 2>/dev/null ;;
        folders) compopt -o dirnames 2>/dev/null ;;
    esac
}
complete -F _windlass_complete windlass
"""

_ZSH = r"""#compdef windlass
# Completion of windlass for zsh.
_windlass() {
    local how="" line value
    local -a values shown
    while IFS= read -r line; do
        if [[ -z $how ]]; then how=$line; continue; fi
        value=${line%%$'\t'*}
        values+=("$value")
        if [[ -n ${line#*$'\t'} ]]; then shown+=("$value  -- ${line#*$'\t'}"); else shown+=("$value"); fi
    done < <(_WINDLASS_COMPLETE=zsh ${(Q)words[1]} "${(@Q)words[1,CURRENT]}" 2>/dev/null)
    case $how in
        nospace) compadd -V windlass -S '' -l -d shown -a values ;;
        paths) compadd -f -- $values ;;
        files) _files ;;
        folders) _files -/ ;;
        plain) compadd -V windlass -l -d shown -a values ;;
    esac
}
if [[ $funcstack[1] == _windlass ]]; then
    _windlass "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _windlass windlass
fi
"""

_FISH = r"""# Completion of windlass for fish.
function __windlass_complete
    set -l word (commandline --cut-at-cursor --current-token)
    set -l words (commandline --tokenize --cut-at-cursor --current-process) $word
    set -l answer (_WINDLASS_COMPLETE=fish $words[1] $words 2>/dev/null)
    switch "$answer[1]"
        case files
            __fish_complete_path $word
        case folders
            __fish_complete_directories $word
        case '*'
            string join \n -- $answer[2..-1]
    end
end
complete --command windlass --no-files --keep-order --arguments '(__windlass_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
