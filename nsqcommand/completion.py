"""``nsq completion SHELL``: prints a script that completes ``nsq`` in bash, zsh or fish.

The script asks ``nsq completion --words …`` at each press of Tab, so it need not be made again after an update.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from nsqcommand.subcommands import SUBCOMMANDS, find
from nsqdaemon.command_line import CommandParser

BASH: Final = """\
# Completion of nsq in bash. In ~/.bashrc: eval "$(nsq completion bash)"
_nsq() {
    local word
    COMPREPLY=()
    while IFS=$'\\t' read -r word _; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _nsq nsq
"""
ZSH: Final = """\
#compdef nsq
# Completion of nsq in zsh. In ~/.zshrc, after compinit: eval "$(nsq completion zsh)"
_nsq() {
    local line word
    local -a found shown
    while IFS= read -r line; do
        word=${line%%$'\\t'*}
        found+=("$word")
        shown+=("$word -- ${line#*$'\\t'}")
    done < <("${words[1]}" completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        compadd -l -d shown -a found
    else
        _files
    fi
}
compdef _nsq nsq
"""
FISH: Final = """\
# Completion of nsq in fish. In ~/.config/fish/config.fish: nsq completion fish | source
function __nsq_complete
    set -l typed (commandline -opc)
    set -l found ($typed[1] completion --words $typed[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c nsq -f -a '(__nsq_complete)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}

Candidates = Iterator[tuple[str, str]]
"""Words that complete the last one, each with its help."""


def parser() -> CommandParser:
    """The parser of the command."""
    made = CommandParser(
        prog="nsq completion",
        description="Print a script with which a shell completes subcommands, verbs, options and their values.",
        examples=[
            ('eval "$(nsq completion bash)"', "in ~/.bashrc"),
            ('eval "$(nsq completion zsh)"', "in ~/.zshrc, after compinit"),
            ("nsq completion fish | source", "in ~/.config/fish/config.fish"),
        ],
    )
    made.add_argument("shell", choices=sorted(SCRIPTS), help="the shell")
    return made


def main(argv: Sequence[str]) -> int:
    """Print the script. After ``--words``, as the scripts call it: a line for each candidate, with a tab and its
    help."""
    if argv[:1] == ["--words"]:
        for word, help_line in candidates(argv[1:]):
            print(word, " ".join(help_line.split()), sep="\t")
        return 0
    print(SCRIPTS[parser().parse_args(argv).shell], end="")
    return 0


def candidates(words: Sequence[str]) -> Candidates:
    """Complete the last of ``words``, the arguments of ``nsq``. Without a candidate, shells complete names of files."""
    *before, last = list(words) or [""]
    if not before:
        every = {name: each.help for name, each in SUBCOMMANDS.items() if each.is_installed}
        every |= {"help": "show a subcommand's help", "--help": "list the subcommands", "--version": "print versions"}
        return _beginning(last, every)
    name, *before = before
    if name == "help":
        return iter(()) if before else candidates([last])
    subcommand = find(name)
    if subcommand is None or not subcommand.is_installed:
        return iter(())
    return _of_parser(subcommand.parser(), before, last)


def _of_parser(parser: CommandParser, before: Sequence[str], last: str) -> Candidates:
    """Complete ``last`` after the arguments ``before``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verb = next((word for word in before if word in action.choices), None)
            if verb is not None:
                return _of_parser(action.choices[verb], before[before.index(verb) + 1 :], last)
            parser.verbs = {choice.dest: choice.help or "" for choice in action._choices_actions}
    options = {
        option: action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    }
    # bash makes three words of --option=value.
    flag, equals, value = last.partition("=")
    if last == "=" and before:
        return _values(parser, options, before[-1], "")
    if before[-1:] == ["="] and len(before) > 1:
        return _values(parser, options, before[-2], last)
    if equals and flag in options:
        return ((f"{flag}={word}", help_line) for word, help_line in _values(parser, options, flag, value))
    if before and _takes_value(options.get(before[-1])):
        return _values(parser, options, before[-1], last)
    if last.startswith("-"):
        return _beginning(last, {option: _help_of(parser, action) for option, action in options.items()})
    if not [word for word in before if not word.startswith("-")]:
        words = dict(parser.verbs)
        for action in parser._get_positional_actions():
            if not isinstance(action, argparse._SubParsersAction):
                words |= {str(choice): "" for choice in action.choices or ()}
        return _beginning(last, words)
    return iter(())


def _beginning(start: str, words: dict[str, str]) -> Candidates:
    return ((word, help_line) for word, help_line in words.items() if word.startswith(start))


def _takes_value(action: argparse.Action | None) -> bool:
    return action is not None and action.nargs not in (0, "?")


def _values(parser: CommandParser, options: dict[str, argparse.Action], option: str, start: str) -> Candidates:
    action = options.get(option)
    known = parser.values.get(option) or (action.choices if action is not None else None) or ()
    return _beginning(start, {str(value): "" for value in known})


def _help_of(parser: CommandParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""
