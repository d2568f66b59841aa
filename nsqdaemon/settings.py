"""Settings. Each is declared once, as a field that defines its flag, file key, environment variable and docs row.

    @dataclass(frozen=True, kw_only=True)
    class BrokerSettings(Settings, env="BROKERD_"):
        msg_timeout: timedelta = setting("60s", "Time a message may stay in flight before it is requeued.", min="1ms")

gives ``--msg-timeout``, ``msg_timeout`` in the TOML file, ``BROKERD_MSG_TIMEOUT`` and ``settings.msg_timeout``. A flag
overrides the environment, which overrides the file. Flags are parsed as by Go's flag package.

``python -m nsqdaemon.settings package.module:Class page.md [heading]`` rewrites the table of a documentation page,
or of the section with ``heading``.
"""

import argparse
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from datetime import timedelta
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from nsqdaemon import logs
from nsqdaemon.command_line import USAGE, CommandParser
from nsqdaemon.declaration import Declaration, shown_value, split_list, value_from_file, value_from_text, value_of_code
from nsqdaemon.logs import LogLevel
from nsqdaemon.variable import InvalidVariable

log = logging.getLogger(__name__)

S = TypeVar("S", bound="Settings")
Value: TypeAlias = bool | int | float | str | timedelta | tuple["Value", ...] | None
"""A setting's value."""


def setting(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    key: str | None = None,
    file: bool = True,
    env: bool = True,
    min: Any = None,
    max: Any = None,
    choices: Sequence[str] = (),
    bare: str | None = None,
    shown: str | None = None,
    hidden: bool = False,
) -> Any:
    """Declare a field of a Settings class.

    The annotation is the type: ``str int float bool timedelta LogLevel``, or ``tuple[str, ...]`` and
    ``tuple[float, ...]`` for a flag that may be given several times (commas separate numbers, and everything in the
    environment). ``default``, ``min`` and ``max`` may be texts as a user writes them (``"60s"``); a callable default is
    called at each load, and ``shown`` is the text for it in the docs.

    ``key`` is the file's key if it is not the field's name. ``file=False`` excludes the setting from file and
    environment, ``env=False`` from the environment only. ``bare`` is the value of ``--flag`` without a value, for a
    flag that is not a plain boolean. ``hidden`` omits the flag from usage and docs.
    """
    declaration = Declaration(
        default=default,
        help=help,
        flag=flag,
        key=key,
        file=file,
        env=env and file,
        min=min,
        max=max,
        choices=tuple(choices),
        bare=bare,
        shown=shown,
        hidden=hidden,
    )
    return field(default=None, metadata={"declaration": declaration})


class Settings:
    """Base of the settings classes. Completes each declaration from its field's name and type.

    ``env`` is the prefix of the environment variables; without it, the class has flags only, and reads neither file nor
    environment. A field ``config`` is the path of the TOML file to read; a field ``version`` prints the version and
    exits.
    """

    ENV_PREFIX: ClassVar[str] = ""

    def __init_subclass__(cls, env: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.ENV_PREFIX = env
        hints = get_type_hints(cls)
        for name, value in list(vars(cls).items()):
            if not isinstance(value, Field):
                continue
            declaration: Declaration = value.metadata["declaration"]
            hint = hints[name]
            declaration.repeatable = get_origin(hint) is tuple
            declaration.kind = get_args(hint)[0] if declaration.repeatable else hint
            declaration.flag = declaration.flag or name.replace("_", "-")
            declaration.key = declaration.key or name
            bounds = declaration.min, declaration.max
            declaration.min = declaration.max = None  # so that a bound written as text is not checked against itself
            declaration.min, declaration.max = (value_of_code(declaration, bound) for bound in bounds)
            if callable(declaration.default):
                value.default, value.default_factory = MISSING, declaration.default
            elif declaration.repeatable:
                value.default = tuple(declaration.default)
            else:
                value.default = value_of_code(declaration, declaration.default)


def declarations(cls: type[Settings]) -> dict[str, Declaration]:
    """The declarations of a settings class by field name: its own in order, then those of each base class."""
    every = {f.name: f.metadata["declaration"] for f in fields(cls)}  # type: ignore[arg-type]
    return {name: every[name] for above in cls.__mro__ for name in get_annotations(above) if name in every}


def file_keys(cls: type[Settings]) -> dict[str, str]:
    """File key -> field name, for the settings that a file may contain."""
    return {d.key or name: name for name, d in declarations(cls).items() if d.file and cls.ENV_PREFIX}


def variables(cls: type[Settings]) -> dict[str, str]:
    """Environment variable -> field name, for the settings that the environment may contain."""
    prefix = cls.ENV_PREFIX
    return {prefix + name.upper(): name for name, d in declarations(cls).items() if d.env and prefix}


# --- the command line ---


class SettingsParser(CommandParser):
    """argparse for types, usage and errors; ``_go_words`` prepares its arguments.

    A program under NSQ's own name reports errors as NSQ's do: with the usage, and some with status 1.
    """

    @property
    def is_subcommand(self) -> bool:
        """Whether this is a subcommand of ``nsq``, rather than a program under NSQ's name."""
        return self.prog.startswith("nsq ")

    def error(self, message: str) -> NoReturn:
        if self.is_subcommand:
            super().error(message)
        self.exit(USAGE, f"{self.prog}: {message}\n\n{self.format_usage()}")


def parser_of(
    cls: type[Settings],
    *,
    prog: str,
    description: str | None = None,
    words: str = "",
    examples: Sequence[tuple[str, str]] = (),
) -> SettingsParser:
    """The parser of a settings class, for its help; :func:`load` reads the settings.

    ``words`` are the arguments that are not flags, for the usage. The usage of a subcommand of ``nsq`` has no flags.
    """
    is_subcommand = prog.startswith("nsq ")
    parser = SettingsParser(
        prog=prog,
        usage=" ".join(filter(None, (prog, words, "[options]"))) if is_subcommand else None,
        description=description,
        examples=examples if is_subcommand else (),
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    for name, declaration in declarations(cls).items():
        parser.add_argument(
            f"--{declaration.flag_name}",
            dest=name,
            type=_flag_reader(declaration, is_subcommand=is_subcommand),
            action="extend" if declaration.repeatable else "store",
            nargs="?" if declaration.takes_no_value else None,
            metavar=_metavar(declaration),
            help=argparse.SUPPRESS if declaration.hidden else _help(declaration),
        )
        if declaration.choices or declaration.kind is LogLevel:
            every = declaration.choices or [level.word for level in LogLevel]
            parser.values[f"--{declaration.flag_name}"] = [choice for choice in every if choice]
    if is_subcommand:
        parser.add_argument("-h", "--help", action="store_true", help="Show this help and exit.")
    return parser


def _flag_reader(declaration: Declaration, *, is_subcommand: bool) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            if not declaration.repeatable:
                return value_from_text(declaration, text)
            if declaration.kind is float:
                return _numbers(declaration, text, is_subcommand=is_subcommand)
            return [value_from_text(declaration, text)]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _numbers(declaration: Declaration, text: str, *, is_subcommand: bool) -> list[float]:
    """Split a list of numbers at commas, as nsqd does (it does not split its other lists). Under nsqd's name, a part
    that is not a number ends the process with its message and exit status 1."""
    values: list[float] = []
    for part in text.split(","):
        try:
            values.append(value_from_text(declaration, part.strip()))
        except ValueError:
            if is_subcommand:
                raise
            if sys.stderr is not None:
                sys.stderr.write(f"{time.strftime('%Y/%m/%d %H:%M:%S')} Could not parse: {part}\n")
            raise SystemExit(1) from None
    return values


def _go_words(
    parser: SettingsParser, cls: type[Settings], argv: Iterable[str], *, refuse_words: bool, taken: list[str] | None
) -> list[str]:
    """Convert Go's flag syntax to plain ``--name=value`` words.

    ``-x`` is ``--x``. A boolean takes a value only after ``=``; any other flag takes the next word, even if that begins
    with a dash. The first word that is not a flag ends the flags. The rest is ignored; with ``refuse_words``
    it is an error, with exit status 2 for a subcommand of ``nsq`` and 1 otherwise. With ``taken``, words that are not
    flags are added to it; flags may follow, until ``--``.
    """
    by_flag = {declaration.flag_name: declaration for declaration in declarations(cls).values()}
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            if taken is not None:
                taken += [*rest] if word == "--" else [word]
                continue
            stray = [*rest] if word == "--" else [word, *rest]
            if stray and refuse_words:
                status = USAGE if parser.is_subcommand else 1
                parser.exit(status, f"{parser.prog}: unknown arguments: [{' '.join(stray)}]\n")
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if name in ("h", "help"):
            if parser.is_subcommand and sys.stdout is not None:
                print(parser.format_help(), end="", flush=True)
                parser.exit()
            parser.exit(0, parser.format_help())
        if not name or name.startswith("-"):
            parser.error(f"bad flag syntax: {word}")
        declaration = by_flag.get(name)
        if declaration is None:
            parser.error(f"flag provided but not defined: -{name}")
        if not equals:
            if declaration.takes_no_value:
                value = declaration.bare or "true"
            else:
                following = next(rest, None)
                if following is None:
                    parser.error(f"flag needs an argument: -{name}")
                value = following
        words.append(f"--{name}={value}")
    return words


def _metavar(declaration: Declaration) -> str:
    if declaration.choices:
        return "|".join(c for c in declaration.choices if c)
    kind = {timedelta: "duration", LogLevel: "level"}.get(declaration.kind, declaration.kind.__name__)
    return kind + (" ..." if declaration.repeatable else "")


def _help(declaration: Declaration) -> str:
    shown = _shown_default(declaration)
    return (declaration.help + (f" (default {shown})" if shown else "")).replace("%", "%%")


def _shown_default(declaration: Declaration) -> str:
    if declaration.shown is not None:
        return declaration.shown
    if declaration.repeatable:
        return ", ".join(shown_value(v) for v in declaration.default)
    return shown_value(value_of_code(declaration, declaration.default))


# --- combining the sources ---


def load(
    cls: type[S],
    *,
    prog: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    version_text: str,
    description: str | None = None,
    refuse_words: bool = False,
    taken: list[str] | None = None,
    words: str = "",
    examples: Sequence[tuple[str, str]] = (),
) -> S:
    """Read the settings of a program.

    ``description`` precedes the flags in the usage; ``words`` and ``examples`` are for :func:`parser_of`. Words that
    are not flags are ignored, as in nsqd. With ``refuse_words`` they end the program with status 1, as in nsq_to_file.
    With ``taken``, they are added to it, and flags may follow them.

    Exits 0 after ``-h`` (usage on stderr) and ``--version`` (``version_text`` on stdout); 2, with a message and the
    usage on stderr, for an invalid flag or variable; 1, with a FATAL log line, for an invalid file. A subcommand of
    ``nsq`` prints its help on stdout, and errors without the usage.
    """
    parser = parser_of(cls, prog=prog, description=description, words=words, examples=examples)
    arguments = _go_words(parser, cls, argv, refuse_words=refuse_words, taken=taken)
    given = vars(parser.parse_args(arguments))
    if given.get("version"):
        if sys.stdout is not None:
            print(version_text, flush=True)
        raise SystemExit(0)
    try:
        from_environment = _read_environment(cls, environ)
    except InvalidVariable as error:
        parser.error(f"environment variable {error}")
    path = given.get("config") or from_environment.get("config") or ""
    from_file = _read_file(cls, str(path), prog) if path else {}
    from_flags = {name: _listed(declarations(cls)[name], value) for name, value in given.items()}
    return cls(**{**from_file, **from_environment, **from_flags})


def _listed(declaration: Declaration, value: Any) -> Any:
    """The value of a flag or variable: a tuple if it may be repeated, with numbers in descending order, as in nsqd.

    Numbers from a file keep their order.
    """
    if not declaration.repeatable:
        return value
    return tuple(sorted(value, reverse=True)) if declaration.kind is float else tuple(value)


def of_environment(cls: type[S], environ: Mapping[str, str]) -> S:
    """Read the settings from variables only. Raises InvalidVariable."""
    return cls(**_read_environment(cls, environ))


def _read_environment(cls: type[Settings], environ: Mapping[str, str]) -> dict[str, Value]:
    """Read the variables of ``cls``; returns values by field name. Raises InvalidVariable."""
    found: dict[str, Value] = {}
    for variable, name in variables(cls).items():
        if variable not in environ:
            continue
        declaration, text = declarations(cls)[name], environ[variable]
        try:
            if declaration.repeatable:
                found[name] = _listed(declaration, [value_from_text(declaration, part) for part in split_list(text)])
            else:
                found[name] = value_from_text(declaration, text)
        except ValueError as error:
            raise InvalidVariable(variable, str(error)) from None
    return found


def _read_file(cls: type[Settings], path: str, prog: str) -> dict[str, Value]:
    """The file's values by field name. Unknown keys and tables are ignored, as in nsqd."""
    import tomllib  # imported here because most programs start without a file

    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        _fatal(prog, f"failed to load config file {path} - {error}")
    found: dict[str, Value] = {}
    for key, name in file_keys(cls).items():
        if key not in document:
            continue
        try:
            found[name] = value_from_file(declarations(cls)[name], document[key])
        except ValueError as error:
            _fatal(prog, f"failed parsing {key} {document[key]} - {error}")
    return found


def _fatal(prog: str, message: str) -> NoReturn:
    logs.configure(LogLevel.INFO, f"[{prog}] ")
    log.critical("%s", message)
    raise SystemExit(1)


# --- the docs ---


def markdown(cls: type[Settings]) -> str:
    """A Markdown table of all settings that have an effect, without empty columns."""
    rows = [("flag", "file key", "environment", "value", "default", "meaning")]
    keys = {name: key for key, name in file_keys(cls).items()}
    variable_of = {name: variable for variable, name in variables(cls).items()}
    for name, declaration in declarations(cls).items():
        if declaration.hidden:
            continue
        default = _shown_default(declaration)
        cells = (
            f"`--{declaration.flag_name}`",
            f"`{keys[name]}`" if name in keys else "",
            f"`{variable_of[name]}`" if name in variable_of else "",
            _metavar(declaration),
            f"`{default}`" if default else "",
            declaration.help.replace("<", "\\<"),
        )
        rows.append(cells)
    used = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    lines = ["| " + " | ".join(row[column].replace("|", "\\|") for column in used) + " |" for row in rows]
    lines.insert(1, "|---" * len(used) + "|")
    return "\n".join(lines) + "\n"


def rewrite_page(page: Path, cls: type[Settings], heading: str = "") -> None:
    """Replace the first table of settings of ``page``, or the first below the line ``heading``."""
    text = page.read_text()
    below = text.index(f"\n{heading}\n") if heading else 0
    match = re.compile(r"^\| flag \| (file key|value) \|", re.MULTILINE).search(text, below)
    assert match is not None, "the page has no table of settings to be replaced"
    start = match.start()
    _, gap, after = text[start:].partition("\n\n")
    page.write_text(text[:start] + markdown(cls) + gap[1:] + after)


if __name__ == "__main__":
    module_name, _, class_name = sys.argv[1].partition(":")
    rewrite_page(Path(sys.argv[2]), getattr(import_module(module_name), class_name), *sys.argv[3:])
