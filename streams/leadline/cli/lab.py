"""``leadline lab``: simulated sessions with a known truth. Needs the extra ``lab``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from leadline.cli import exits
from leadline.cli.screen import console, emit_json

if TYPE_CHECKING:
    from leadline.lab.quality import Quality, Share
    from leadline.lab.reproduce import Reproduction, Row

__all__ = ["lab"]


@click.group("lab", epilog=exits.EPILOG)
def lab() -> None:
    """Experiments on simulated sessions, whose truth is known."""


@lab.command("reproduce", epilog=exits.EPILOG)
@click.option("--seeds", type=click.IntRange(min=1), default=50, show_default=True, help="Sessions of each kind.")
@click.option(
    "--first-seed", type=click.IntRange(min=0), default=0, show_default=True, help="The parameters were calibrated on 0-49."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png", help="Draw the curves.")
def reproduce_verb(seeds: int, first_seed: int, as_json: bool, picture: Path | None) -> int:
    """Run the founding documents' experiments again and compare.

    Simulates the loop of the salience-inversion document (a 180k-token budget, 40 rounds, depth 3) from nothing but its
    parts, three sessions a seed: as observed, without the recency decay, with grounding enforced. Each published figure
    stands beside the median and the 90 % band over the seeds; the value of every parameter is given with its reason.

    Exits 1 when a figure is not reproduced (within 10 %; onset rounds within 2).
    """
    with _lab_extra():
        from leadline.lab.reproduce import reproduce

    with _progress() as tell:
        found = reproduce(seeds, tell, first_seed=first_seed)
    if picture is not None:
        with _lab_extra():
            from leadline.lab.reproduce_plot import plot
        plot(found, picture)
    if as_json:
        emit_json(found.as_json())
    else:
        _show(found)
    return exits.OK if all(row.reproduced for row in (*found.rows, *found.truncation)) else exits.FAILED


@lab.command("quality", epilog=exits.EPILOG)
@click.option(
    "--sessions", type=click.IntRange(min=8), default=1000, show_default=True, help="Labelled sessions, of all kinds together."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.png", help="Draw the shares.")
def quality_verb(sessions: int, as_json: bool, picture: Path | None) -> int:
    """Measure the rules on simulated sessions whose truth is known.

    Every kind of session in equal parts (inverting, drifting, pinned, truncating, constraint-losing, healthy with noise,
    healthy and shallow, opaque summaries), with several scorers and summarizers. By rule: precision, recall, detection delay;
    alarms per 1,000 healthy sessions. Then inverting sessions with a monitor listening, once obeying and once ignoring its
    commands: the claims that have no support at the end, and what obeying cost in tokens.

    The labels come from the simulator's own books, never from the rules.
    """
    with _lab_extra():
        from leadline.lab.quality import quality
    with _progress() as tell:
        found = quality(sessions, tell)
    if picture is not None:
        with _lab_extra():
            from leadline.lab.quality_plot import plot
        plot(found, picture)
    if as_json:
        emit_json(found.as_json())
    else:
        _show_quality(found)
    return exits.OK


@contextmanager
def _lab_extra() -> Iterator[None]:
    """Around an import that needs the extra ``lab``."""
    try:
        yield
    except ImportError as error:
        raise exits.MissingExtra("lab", "lab", error.name or "numpy") from None


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A line on standard error that counts, where a person sees it."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    with screen.status("simulating") as status:
        yield lambda done, of: status.update(f"simulating: {done} of {of}")


def _show(found: Reproduction) -> None:
    out = console()
    out.print(_figures(f"Salience inversion, {found.experiment.seeds} seeds", found.rows))
    out.print(_figures("Truncation collapse", found.truncation))
    for blame in found.collapse.blames:
        levels = "; ".join(f"{rule} blames level {', '.join(map(str, at))}" for rule, at in sorted(blame.levels.items()))
        out.print(f"  {blame.reporting}: {levels or 'nothing is blamed'}")
    table = Table(title="What moves the onset", title_justify="left")
    for name in ("the loop", "with decay", "without", "earlier by"):
        table.add_column(name, justify="left" if name == "the loop" else "right")
    for one in found.mechanism:
        table.add_row(one.what, f"{one.with_decay:g}", f"{one.without_decay:g}", f"{one.delay:g}")
    out.print(table)
    table = Table(title="Parameters", title_justify="left")
    for name in ("parameter", "value", "reason"):
        table.add_column(name, overflow="fold")
    for row in found.as_json()["parameters"]:
        table.add_row(row["name"], str(row["value"]), row["reason"])
    out.print(table)


def _figures(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("published", "", "median", "90 % band", "differs by", "reproduced", "note"):
        table.add_column(name, overflow="fold", justify="right" if name in ("", "median", "differs by") else "left")
    for row in rows:
        figure = row.figure
        value = f"{figure.value:g}" if figure.upper is None else f"{figure.value:g}-{figure.upper:g}"
        differs = f"{row.difference:+.1f} rounds" if figure.within == "rounds" else f"{row.difference:+.1%}"
        if figure.within in ("at-most", "at-least", "exact"):
            differs = "" if row.reproduced else f"{row.band.median - figure.value:+.3g}"
        band = f"{row.band.low:.3g} to {row.band.high:.3g}"
        table.add_row(figure.says, value, f"{row.band.median:.3g}", band, differs, "yes" if row.reproduced else "NO", row.note)
    return table


def _show_quality(found: Quality) -> None:
    out = console()
    table = Table(title=f"{len(found.judged)} labelled sessions, 95 % intervals", title_justify="left")
    for name in ("rule", "true in", "precision", "recall", "delay"):
        table.add_column(name, justify="left" if name == "rule" else "right")
    for rule in found.rules:
        delay = "" if rule.delay is None else f"{rule.delay:g}"
        table.add_row(rule.rule, str(rule.sessions), _share(rule.precision), _share(rule.recall), delay)
    out.print(table)
    healthy = found.as_json()["healthy"]
    for name in ("alarms", "halts"):
        rate = healthy[f"{name}_per_1000"]
        out.print(
            f"{name} per 1,000 healthy sessions: {rate['value']} ({rate['low']} to {rate['high']}; {found.healthy} sessions)"
        )
    for name, rate in healthy["alarms_by_rule_per_1000"].items():
        out.print(f"  of them {name}: {rate['value']} ({rate['low']} to {rate['high']})")
    out.print(f"sessions that ended with an unsupported claim and were flagged: {_share(found.grave_unsupported)}")
    if found.lead is not None:
        out.print(f"erosion warned {found.lead:g} rounds before inversion (median)")
    closed = found.closed
    out.print(
        f"closed loop, {closed.sessions} sessions: {closed.unsupported_ignored} unsupported claims with commands ignored, "
        f"{closed.unsupported_obeyed} with commands obeyed; medians: {closed.token_cost:.1%} of the budget read again, "
        f"{closed.halts:g} halts, {closed.waited:g} rounds spent halted"
    )


def _share(share: Share) -> str:
    if share.value is None:
        return "no case"
    return f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})"
