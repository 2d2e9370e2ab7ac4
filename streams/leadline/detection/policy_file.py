"""A policy as text (TOML): read whole, or refused with the sentence that says what is wrong and where.

::

    version = "2026-11-30"            # optional; without it the version is derived from the content

    [default]
    raw_ratio_floor = 0.25
    command_ttl_ms = 60_000

    [default.modes]
    drift = "shadow"                  # off, shadow, warn, enforce

    [fleets.research]                 # what differs from the default
    pin_rounds = 8
"""

from __future__ import annotations

import tomllib
from hashlib import blake2b
from typing import Any, Final

import msgspec

from leadline.detection.policy import FleetPolicy, Policy
from leadline.detection.rules import RULE_NAMES
from leadline.errors import SettingsError

__all__ = ["parse_policy"]

_TOP: Final = ("version", "default", "fleets")
_FRACTIONS: Final = (
    "raw_ratio_floor",
    "raw_ratio_exit",
    "span_floor_fraction",
    "recall_floor",
    "rerank_spare",
    "erosion_ratio",
    "masked_span_fall",
    "stall_freed_fraction",
    "budget_tolerance",
)
_COUNTS: Final = (
    "pin_rounds",
    "depth_cap",
    "erosion_horizon",
    "stall_rounds",
    "stall_halt_rounds",
    "same_size_calls",
    "good_rounds",
    "effect_rounds",
    "attempts",
)
_TIMES: Final = ("silence_ms", "command_ttl_ms", "effect_ttl_ms", "ended_linger_ms", "idle_ms")
_LONGEST_MS: Final = 10 * 365 * 24 * 3_600_000
_NOT_NEGATIVE: Final = ("same_size_tokens", "placeholder_tokens", "placeholder_input_tokens")
_MOST: Final = 1_000_000_000
_MOST_ATTEMPTS: Final = 100


def parse_policy(text: str, source: str = "policy") -> Policy:
    """The policy that ``text`` describes. Raises :class:`SettingsError` naming ``source``, the key and what to do."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source}: not TOML: {error}; correct that line") from None
    except RecursionError:
        raise SettingsError(f"{source}: not TOML: nested too deep") from None
    for key in raw:
        if key not in _TOP:
            raise SettingsError(f"{source}: unknown key {key!r}; expected one of {', '.join(_TOP)}")
    default_raw = _table(raw.get("default", {}), f"{source}: [default]")
    default = _fleet(default_raw, f"{source}: [default]")
    fleets = {
        name: _fleet(_merged(default_raw, _table(table, f"{source}: [fleets.{name}]")), f"{source}: [fleets.{name}]")
        for name, table in _table(raw.get("fleets", {}), f"{source}: [fleets]").items()
    }
    version = raw.get("version", blake2b(text.encode(), digest_size=6).hexdigest())
    if not isinstance(version, str) or not 0 < len(version) <= 64:
        raise SettingsError(f"{source}: version must be a text of 1 to 64 characters, like '2026-11-30'")
    return Policy(version=version, default=default, fleets=fleets)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"{where} must be a table of keys and values")
    return value


def _merged(default: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = {**default, **own}
    if isinstance(own.get("modes"), dict) and isinstance(default.get("modes"), dict):
        merged["modes"] = {**default["modes"], **own["modes"]}
    return merged


def _fleet(raw: dict[str, Any], where: str) -> FleetPolicy:
    known = FleetPolicy.__struct_fields__
    for key in raw:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}; the keys are {', '.join(known)}")
    try:
        policy = msgspec.convert(raw, FleetPolicy)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {str(error).replace('$.', '')}") from None
    for rule in policy.modes:
        if rule not in RULE_NAMES:
            raise SettingsError(f"{where}: modes names no rule {rule!r}; the rules are {', '.join(RULE_NAMES)}")
    for wrong in _wrong(policy):
        raise SettingsError(f"{where}: {wrong}")
    return policy


def _wrong(policy: FleetPolicy) -> list[str]:
    """Values that are of the right type and make no sense, each as a sentence."""
    found = [
        f"{name} is {getattr(policy, name)!r}; it must lie between 0 and 1"
        for name in _FRACTIONS
        if not 0 <= getattr(policy, name) <= 1
    ]
    if policy.raw_ratio_exit <= policy.raw_ratio_floor:
        found.append(
            f"raw_ratio_exit ({policy.raw_ratio_exit}) must be above raw_ratio_floor ({policy.raw_ratio_floor}), "
            "or a ratio that hovers would open and close an incident every round"
        )
    if not 1 <= policy.span_exit_factor <= 100:
        found.append(f"span_exit_factor is {policy.span_exit_factor}; it must lie between 1 and 100")
    found += [
        f"{name} is {value}; it must be 1 or more, and at most {_MOST}"
        for name in _COUNTS
        if not 1 <= (value := getattr(policy, name)) <= _MOST
    ]
    if policy.attempts > _MOST_ATTEMPTS:
        found.append(f"attempts is {policy.attempts}; it must be at most {_MOST_ATTEMPTS}")
    found += [
        f"{name} is {value}; it must be 0 or more, and at most {_MOST}"
        for name in _NOT_NEGATIVE
        if not 0 <= (value := getattr(policy, name)) <= _MOST
    ]
    found += [
        f"{name} is {value}; it must be at least 1000 (milliseconds), and at most {_LONGEST_MS} (ten years)"
        for name in _TIMES
        if not 1000 <= (value := getattr(policy, name)) <= _LONGEST_MS
    ]
    return found
