"""Settings: one declaration, four sources, Go's flag syntax."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from nsqdaemon.logs import LogLevel
from nsqdaemon.settings import Settings, load, markdown, setting


@dataclass(frozen=True, kw_only=True)
class Example(Settings, env="EXAMPLE_"):
    config: str = setting("", "A file.", file=False)
    version: bool = setting(False, "Print the version.", file=False)
    verbose: bool = setting(False, "Nothing.", file=False, hidden=True)
    log_level: LogLevel = setting("info", "Least level.")
    msg_timeout: timedelta = setting("60s", "How long.", min="1ms", max="1h")
    max_msg_size: int = setting(1024, "Largest.", min=1)
    deflate: bool = setting(True, "Compress.")
    required: str = setting("false", "Policy.", choices=("false", "true", "tcp-https"), bare="true")
    lookupd_address: tuple[str, ...] = setting((), "Peers.", key="nsqlookupd_addresses")
    percentile: tuple[float, ...] = setting((), "Quantiles.", key="percentiles")
    hostname: str = setting(lambda: "this-host", "Name.", shown="the host's name")


Load = Callable[..., Example]


@pytest.fixture
def load_example(tmp_path: Path) -> Load:
    def run(*argv: str, environ: dict[str, str] | None = None, file: str | None = None) -> Example:
        words = list(argv)
        if file is not None:
            path = tmp_path / "example.toml"
            path.write_text(file)
            words = ["--config", str(path), *words]
        return load(Example, prog="example", argv=words, environ=environ or {}, version_text="example v1")

    return run


def test_defaults_have_the_declared_types(load_example: Load) -> None:
    """Without any source, every setting has its default, in its own type."""
    settings = load_example()
    assert settings == Example()
    assert settings.msg_timeout == timedelta(seconds=60)
    assert settings.log_level is LogLevel.INFO
    assert settings.hostname == "this-host"


@pytest.mark.parametrize(
    "words",
    [
        ["-msg-timeout", "5s"],
        ["--msg-timeout", "5s"],
        ["-msg-timeout=5s"],
        ["--msg-timeout=5s"],
        ["--verbose", "--msg-timeout=5s"],
        ["--msg-timeout=1s", "--msg-timeout=5s"],
    ],
)
def test_a_flag_is_taken_in_each_of_gos_forms(load_example: Load, words: list[str]) -> None:
    """One dash or two, a space or an equals sign are equivalent, and the last flag counts."""
    assert load_example(*words).msg_timeout == timedelta(seconds=5)


def test_a_boolean_never_takes_the_next_argument(load_example: Load) -> None:
    """``--deflate false`` switches deflate on and ends the flags at ``false``, as in Go."""
    settings = load_example("--deflate", "false", "--max-msg-size=5")
    assert settings.deflate is True
    assert settings.max_msg_size == 1024
    assert load_example("--deflate=false").deflate is False
    assert load_example("--deflate=F").deflate is False


def test_a_value_may_begin_with_a_dash(load_example: Load) -> None:
    """A flag that needs a value takes the next word, whatever it is."""
    assert load_example("--hostname", "--x").hostname == "--x"


def test_parsing_ends_at_the_first_word_that_is_no_flag(load_example: Load) -> None:
    """Everything after a plain word, a lone dash or ``--`` is ignored, even an unknown flag."""
    for end in ("word", "-", "--"):
        assert load_example("--max-msg-size=5", end, "--nonsense").max_msg_size == 5


def test_a_flag_of_a_word_may_stand_alone_where_it_says_so(load_example: Load) -> None:
    """``--required`` means ``--required=true``; its other values may be in any case."""
    assert load_example("--required").required == "true"
    assert load_example("--required=TCP-HTTPS").required == "tcp-https"


def test_lists_grow_with_each_flag(load_example: Load) -> None:
    """Address flags may be repeated; a list of numbers may also contain commas."""
    settings = load_example("--lookupd-address=a:1", "-lookupd-address", "b,c:2", "--percentile=0.5,0.99")
    assert settings.lookupd_address == ("a:1", "b,c:2")
    assert settings.percentile == (0.99, 0.5), "in falling order, as the reference keeps it"


def test_a_list_of_numbers_is_refused_in_the_references_own_way(
    load_example: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, and a line without usage."""
    with pytest.raises(SystemExit) as end:
        load_example("--percentile=0.5,x")
    assert end.value.code == 1
    assert capsys.readouterr().err.endswith(" Could not parse: x\n")


def test_a_flag_overrides_environment_file_and_default(load_example: Load) -> None:
    """Each source overrides the ones after it, setting by setting."""
    settings = load_example(
        "--msg-timeout=1s",
        environ={"EXAMPLE_MSG_TIMEOUT": "2s", "EXAMPLE_MAX_MSG_SIZE": "2", "EXAMPLE_LOOKUPD_ADDRESS": "e:1, e:2"},
        file='msg_timeout = "3s"\nmax_msg_size = 3\ndeflate = false\nnsqlookupd_addresses = ["f:1"]\n',
    )
    assert settings.msg_timeout == timedelta(seconds=1)
    assert settings.max_msg_size == 2
    assert settings.deflate is False
    assert settings.lookupd_address == ("e:1", "e:2")
    assert settings.required == "false"


def test_a_file_takes_what_nsqds_file_takes(load_example: Load) -> None:
    """Milliseconds for a duration, numbers and booleans as text, lists with commas; unknown keys are ignored."""
    settings = load_example(
        file="""
        msg_timeout = 1500
        max_msg_size = "7"
        deflate = "false"
        required = true
        log_level = "WARN"
        nsqlookupd_addresses = "a:1,b:2"
        percentiles = [1, 0.5]
        lookupd_address = ["by flag name: unknown"]
        [table]
        deflate = true
        """
    )
    assert settings == Example(
        config=settings.config,
        msg_timeout=timedelta(milliseconds=1500),
        max_msg_size=7,
        deflate=False,
        required="true",
        log_level=LogLevel.WARN,
        lookupd_address=("a:1", "b:2"),
        percentile=(1.0, 0.5),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nonsense"], "flag provided but not defined: -nonsense"),
        (["--msg"], "flag provided but not defined: -msg"),
        (["-msg", "5s"], "flag provided but not defined: -msg"),
        (["---msg-timeout=5s"], "bad flag syntax: ---msg-timeout=5s"),
        (["--=5"], "bad flag syntax: --=5"),
        (["--msg-timeout"], "flag needs an argument: -msg-timeout"),
        (["--msg-timeout=5"], "'5' needs a unit"),
        (["--msg-timeout=0"], "0s is less than 1ms"),
        (["--msg-timeout=2h"], "2h0m0s is more than 1h0m0s"),
        (["--max-msg-size=1.5"], "'1.5' is not a whole number"),
        (["--max-msg-size=9223372036854775808"], "9223372036854775808 is out of range"),
        (["--deflate=maybe"], "'maybe' is neither true nor false"),
        (["--log-level=loud"], "'loud' is not a log level"),
        (["--required=sometimes"], "'sometimes' is not one of false, true, tcp-https"),
    ],
)
def test_a_bad_command_line_is_refused_by_name(
    load_example: Load, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Status 2, and a message on stderr with the flag and the usage."""
    with pytest.raises(SystemExit) as end:
        load_example(*words)
    output = capsys.readouterr()
    assert end.value.code == 2
    assert said in output.err
    assert "usage: example" in output.err
    assert output.out == ""


def test_a_bad_variable_is_refused_by_name(load_example: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the variable."""
    with pytest.raises(SystemExit) as end:
        load_example(environ={"EXAMPLE_DEFLATE": "maybe"})
    assert end.value.code == 2
    assert "EXAMPLE_DEFLATE: 'maybe' is neither" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("not toml", "failed to load config file"),
        ("msg_timeout = 1.5", "failed parsing msg_timeout 1.5"),
        (f"msg_timeout = {10**13}", "is out of range"),
        (f"msg_timeout = {10**20}", f"{10**20} is out of range"),
        ('log_level = "loud"', "failed parsing log_level loud"),
        ("deflate = 1", "failed parsing deflate 1"),
        ("max_msg_size = true", "failed parsing max_msg_size True"),
        ("hostname = 5", "failed parsing hostname 5"),
        ("nsqlookupd_addresses = 5", "failed parsing nsqlookupd_addresses 5"),
        ("max_msg_size = 0", "0 is less than 1"),
    ],
)
def test_a_bad_file_is_fatal_by_name(
    load_example: Load, capsys: pytest.CaptureFixture[str], file: str, said: str
) -> None:
    """Status 1 and one FATAL line with the key and the value."""
    with pytest.raises(SystemExit) as end:
        load_example(file=file)
    line = capsys.readouterr().err
    assert end.value.code == 1
    assert line.startswith("[example] ")
    assert " FATAL: " in line
    assert said in line
    assert line.count("\n") == 1


def test_a_missing_file_is_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, with the file."""
    with pytest.raises(SystemExit) as end:
        load(Example, prog="example", argv=["-config=/nowhere/x.toml"], environ={}, version_text="")
    assert end.value.code == 1
    assert "FATAL: failed to load config file /nowhere/x.toml - " in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help_is_printed_on_stderr(load_example: Load, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Usage with every flag but the hidden ones; status 0, nothing on stdout."""
    with pytest.raises(SystemExit) as end:
        load_example(word)
    output = capsys.readouterr()
    assert end.value.code == 0
    assert output.out == ""
    assert "--msg-timeout duration" in output.err
    assert "(default 1m0s)" in output.err
    assert "--verbose" not in output.err


def test_version_is_printed_on_stdout_and_reads_no_file(load_example: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read the version from stdout, even if the file is invalid."""
    with pytest.raises(SystemExit) as end:
        load_example("--version", file="not toml")
    assert end.value.code == 0
    assert capsys.readouterr().out == "example v1\n"


def test_the_docs_table_has_a_row_for_each_setting_with_an_effect() -> None:
    """Flag, key, variable and default, as declared; a flag that only a command line may set has no key."""
    table = markdown(Example)
    assert "| `--msg-timeout` | `msg_timeout` | `EXAMPLE_MSG_TIMEOUT` | duration | `1m0s` | How long. |" in table
    assert "`nsqlookupd_addresses` | `EXAMPLE_LOOKUPD_ADDRESS`" in table
    assert "| `--config` |  |  |" in table
    assert "the host's name" in table
    assert "verbose" not in table


@dataclass(frozen=True, kw_only=True)
class Shared(Settings):
    certificate: str = setting("", "PEM file.")


@dataclass(frozen=True, kw_only=True)
class ToolSettings(Shared):
    config: str = setting("", "A file.")


@dataclass(frozen=True, kw_only=True)
class DaemonSettings(Shared, env="DAEMON_"):
    config: str = setting("", "A file.", file=False)


def test_settings_without_a_prefix_are_flags_only() -> None:
    """Such a base class is shared by a tool, which has flags, and a daemon, which also reads its variable."""
    environ = {"CERTIFICATE": "tool", "DAEMON_CERTIFICATE": "daemon"}
    tool = load(ToolSettings, prog="tool", argv=[], environ=environ, version_text="")
    daemon = load(DaemonSettings, prog="daemon", argv=[], environ=environ, version_text="")
    assert (tool.certificate, daemon.certificate) == ("", "daemon")
    assert markdown(ToolSettings).splitlines()[-1] == "| `--certificate` | str | PEM file. |"
    row = "| `--certificate` | `certificate` | `DAEMON_CERTIFICATE` | str | PEM file. |"
    assert markdown(DaemonSettings).splitlines()[-1] == row
