"""``leadline``: the verbs, and the one place where an error becomes a sentence and an exit code.

A verb's module is imported only when that verb runs, so ``leadline --help`` costs no Kafka client and no stream processor.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click

from leadline import __version__
from leadline.cli import exits

__all__ = ["VERBS", "Verb", "cli", "main"]


class Verb(NamedTuple):
    """Where a verb lives (``module:attribute``) and the line that ``leadline --help`` shows for it."""

    where: str
    help: str


VERBS: Final[dict[str, Verb]] = {
    "backtest": Verb("leadline.cli.backtest:backtest", "Tell what a policy would have done on recorded events."),
    "broker": Verb("leadline.cli.broker:broker", "Run the embedded broker in the foreground."),
    "check": Verb("leadline.cli.check:check", "Send a session through the cluster that must be halted."),
    "dashboard": Verb("leadline.cli.dashboard:dashboard", "Serve the fleet as a web page."),
    "demo": Verb("leadline.cli.demo:demo", "Run a fleet with planted trouble, and see it found and stopped."),
    "hook": Verb("leadline.cli.hook:hook", "Answer an agent program's hooks (Claude Code)."),
    "import": Verb("leadline.cli.importing:import_verb", "Turn histories that other programs keep into events."),
    "ingest": Verb("leadline.cli.ingest:ingest", "Make rounds of OpenTelemetry data on Kafka."),
    "keys": Verb("leadline.cli.keys:keys", "Make and show keys for signed commands and events."),
    "lab": Verb("leadline.cli.lab:lab", "Experiments on simulated sessions, whose truth is known."),
    "monitor": Verb("leadline.cli.monitor:monitor", "Run one monitor worker."),
    "policy": Verb("leadline.cli.policy:policy", "Check or show a policy."),
    "replay": Verb("leadline.cli.replay:replay_verb", "Judge recorded sessions offline, without a broker."),
    "send": Verb("leadline.cli.send:send", "Send recorded events to Kafka."),
    "story": Verb("leadline.cli.story:story", "Tell what happened to one session, and why."),
    "tail": Verb("leadline.cli.tail:tail", "Follow violations, commands or dead letters."),
    "top": Verb("leadline.cli.top:top", "Show the fleet in the terminal."),
    "topics": Verb("leadline.cli.topics:topics", "Create or check the topics; print who may do what with them."),
    "topology": Verb("leadline.cli.topology:topology", "Show what reads and writes which topic."),
}


class _PipeClosedError(Exception):
    """The reader of standard output has gone."""


@contextlib.contextmanager
def _pipe_told() -> Iterator[None]:
    # click would end the process with code 1 for a closed pipe before anybody else hears of it.
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeClosedError from error


class LazyGroup(click.Group):
    """A group that knows its verbs by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        module, _, attribute = verb.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _pipe_told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipe_told():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name].help) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, epilog=exits.ALL_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="leadline")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Watches how deep the context summaries of LLM agents are nested, and how much raw evidence is still under them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb and exit. Every failure is one sentence on standard error and a code of :mod:`leadline.cli.exits`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(given))


def _open_what_is_closed() -> None:
    """A stream that the caller closed (``>&-``) is nothing to read, or nobody to tell; a verb still does its work.

    Left closed, its number would be given to the next file or socket, and output would go there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run(arguments: list[str]) -> int:
    try:
        code = cli.main(args=arguments, prog_name="leadline", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.OK
    except (BrokenPipeError, _PipeClosedError):
        _silence_stdout()
        return exits.PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        click.echo(err=True)
        return exits.INTERRUPTED
    except OSError as error:
        if error.errno == errno.ENOSPC:
            click.echo("leadline: no space is left where the output goes; make room, then run it again", err=True)
            _silence_stdout()
            return exits.FAILED
        return _tell(error)
    except BaseException as error:
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else exits.FAILED
        if "--debug" in arguments[:1]:
            raise
        return _tell(error)


# Its message is the whole help page; older versions of click show that by themselves.
_NO_ARGUMENTS: Final[tuple[type[click.UsageError], ...]] = tuple(
    kind for kind in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if kind is not None
)


def _tell(error: BaseException) -> int:
    if isinstance(error, _NO_ARGUMENTS):
        click.echo(error.format_message(), err=True)
    elif isinstance(error, click.UsageError):
        if error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"leadline: {error.format_message()}", err=True)
    else:
        click.echo(f"leadline: {exits.sentence(error)}", err=True)
    return exits.code_of(error)


def _silence_stdout() -> None:
    """The reader has gone (``| head``): keep the interpreter from complaining when it flushes at exit."""
    devnull: Any = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())


if __name__ == "__main__":
    main()
