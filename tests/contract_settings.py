"""Checks that every setting of an algorithm matters; they look at all kinds of actions at once."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from leeward.config import float_fields, from_json, to_json
from leeward.types import Algorithm
from subjects import FACTORS, Subject, leaves, same, small_config

OUTSIDE = {
    "normalize_observations": "applied to the data before the program: see test_engine.py",
    "scale_images": "of images, which no subject has: see test_discrete_images.py",
}
"""Settings that no subject's program can show, each with the reason."""


def changed(value: Any, hint: Any) -> list[Any]:
    """Other values of a static setting."""
    if hint is bool:
        return [not value]
    if hint is int:
        return [value + 1]
    if get_origin(hint) is Literal:
        return [other for other in get_args(hint) if other != value]
    if get_origin(hint) is tuple:
        return [(*value, 5)]
    raise TypeError(f"contract.changed knows no other value for a setting of type {hint}")


def variants(algorithm: Algorithm) -> Iterator[tuple[Subject, Any]]:
    """Where a setting may matter: defaults, presets, switches and pairs of switches, all kinds."""
    hints = get_type_hints(algorithm.config_type)
    default = algorithm.config_type()
    switches = [
        {field.name: other}
        for field in dataclasses.fields(default)
        if hints[field.name] is bool or get_origin(hints[field.name]) is Literal
        for other in changed(getattr(default, field.name), hints[field.name])
        if field.name not in OUTSIDE and field.name != "sampling"
    ]
    pairs = [a | b for a, b in itertools.combinations(switches, 2) if a.keys() != b.keys()]
    for changes in [{}, *map(dict, algorithm.presets.values()), *switches, *pairs]:
        for kind in algorithm.actions:
            yield Subject(algorithm, kind), small_config(algorithm, **changes)


def told(algorithm: Algorithm, config: Any) -> list[float]:
    """What a config tells the engine: lengths of phases, early stopping."""
    found: list[float] = []
    for phase in algorithm.phases:
        stopping = phase.early_stopping
        found.append(phase.steps(config))
        if stopping is not None:
            found += [stopping.every(config), stopping.patience(config), stopping.fraction(config)]
    return found


def fingerprint(subject: Subject, config: Any) -> tuple[str, list[float]]:
    """The program that a config makes, as text, and what it tells the engine."""
    text = str(jax.make_jaxpr(subject.program)(config, jax.random.key(0)))
    return re.sub(r"0x[0-9a-f]+", "", text), told(subject.algorithm, config)


def check_settings_that_are_static_change_the_program(subject: Subject) -> None:
    hints = get_type_hints(subject.algorithm.config_type)
    floats = float_fields(subject.algorithm.config_type)
    left = [name for name in hints if name not in floats and name not in OUTSIDE]
    for other_subject, config in variants(subject.algorithm):
        base = fingerprint(other_subject, config)
        assert base == fingerprint(other_subject, config)
        for name in list(left):
            others = changed(getattr(config, name), hints[name])
            if all(
                fingerprint(other_subject, dataclasses.replace(config, **{name: other})) != base
                for other in others
            ):
                left.remove(name)
        if not left:
            return
    raise AssertionError(f"settings that reach nothing: {left}")


def reached(subject: Subject, config: Any) -> set[str]:
    """The float settings on which the program's result depends, and those told to the engine."""
    names = float_fields(type(config))
    values = [getattr(config, name) for name in names]

    def result(*values: Any) -> list[Any]:
        settings = dataclasses.replace(config, **dict(zip(names, values, strict=True)))
        return jax.tree.leaves(subject.program(settings, jax.random.key(0)))

    program = jax.make_jaxpr(result)(*values)
    used = dce_jaxpr(program.jaxpr, [True] * len(program.out_avals))[1]
    found = {name for name, is_used in zip(names, used, strict=True) if is_used}
    for name in names:
        other = dataclasses.replace(config, **{name: getattr(config, name) + 0.25})
        if told(subject.algorithm, other) != told(subject.algorithm, config):
            found.add(name)
    return found


def check_settings_that_are_floats_reach_the_result(subject: Subject) -> None:
    left = set(float_fields(subject.algorithm.config_type))
    for other_subject, config in variants(subject.algorithm):
        left -= reached(other_subject, config)
        if not left:
            return
    raise AssertionError(f"float settings that reach nothing: {left}")


def check_settings_that_are_floats_change_the_result(subject: Subject) -> None:
    """Those that matter by default, in one program with a row for every change."""
    config = subject.config
    rows: list[tuple[str, Any]] = [("", config)]
    for name, factor in itertools.product(float_fields(type(config)), FACTORS):
        value = factor * getattr(config, name) or factor
        rows.append((name, dataclasses.replace(config, **{name: value})))
    found = leaves(subject.many([row for _, row in rows], [0] * len(rows)))
    differ = {
        name
        for i, (name, row) in enumerate(rows)
        if any(not same(leaf[i], leaf[0]) for leaf in found)
        or told(subject.algorithm, row) != told(subject.algorithm, config)
    }
    assert "" not in differ
    assert differ == reached(subject, config)


def check_settings_survive_json(subject: Subject) -> None:
    config_type = subject.algorithm.config_type
    hints = get_type_hints(config_type)
    assert from_json(config_type, json.loads(json.dumps(to_json(config_type())))) == config_type()
    for preset in subject.algorithm.presets.values():
        assert from_json(config_type, preset) != config_type()
    for field in dataclasses.fields(config_type):
        value = getattr(config_type(), field.name)
        other = value + 0.25 if hints[field.name] is float else changed(value, hints[field.name])[0]
        config = dataclasses.replace(config_type(), **{field.name: other})
        assert from_json(config_type, json.loads(json.dumps(to_json(config)))) == config
