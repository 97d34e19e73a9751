"""Estimates of policies whose values are known exactly: a table of states, and a linear system."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.ope import OpeOptions, Report, Target, estimate
from leeward.ope.behavior import fit_behavior

DISCOUNT = 0.9
OPTIONS = OpeOptions(discount=DISCOUNT, steps=3_000, batch_size=256, hidden=(64, 64))

# --- A table: three states, two actions, every step is the last with probability 0.2 ---

ENDS = 0.2
MOVES = np.array(  # [S, A, S]
    [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [[0.2, 0.6, 0.2], [0.1, 0.1, 0.8]], [[0.5, 0.5, 0.0]] * 2]
)
REWARD = np.array([[0.0, -0.5], [0.2, 0.0], [2.0, 1.0]])  # [S, A]
FIRST = np.array([0.6, 0.3, 0.1])
BEHAVIOR = np.array([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]])  # [S, A]
POLICIES = {
    "right": np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),
    "mixed": np.array([[0.4, 0.6], [0.3, 0.7], [0.5, 0.5]]),
    "left": np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
}


def table_values(policy: np.ndarray) -> np.ndarray:
    """[S]: the solution of Bellman's equation."""
    moves = (policy[:, :, None] * MOVES).sum(axis=1)
    reward = (policy * REWARD).sum(axis=1)
    return np.linalg.solve(np.eye(3) - DISCOUNT * (1.0 - ENDS) * moves, reward)


@functools.cache
def table() -> tuple[Dataset, np.ndarray]:
    """2,000 episodes, and the state of every row."""
    draw = np.random.default_rng(0)
    states, actions, ends = [], [], []
    for _ in range(2_000):
        state = draw.choice(3, p=FIRST)
        while True:
            action = draw.choice(2, p=BEHAVIOR[state])
            states.append(state)
            actions.append(action)
            ends.append(draw.random() < ENDS)
            if ends[-1]:
                break
            state = draw.choice(3, p=MOVES[state, action])
    state, action = np.array(states), np.array(actions)
    data = Dataset.from_arrays(
        np.eye(3)[state],
        action,
        REWARD[state, action],
        np.array(ends),
        action_count=2,
        metadata={"name": "table"},
    )
    return data, state


@functools.cache
def table_report() -> Report:
    data, state = table()
    targets = [Target(name, policy[state]) for name, policy in POLICIES.items()]
    return estimate(data, targets, OPTIONS, behavior=np.log(BEHAVIOR[state, data.action]))


@pytest.mark.parametrize("name", POLICIES)
def test_every_estimator_finds_the_values_of_a_table(name: str) -> None:
    report = table_report()
    data, state = table()
    first = state[data.episode_start]
    truth = float(table_values(POLICIES[name])[first].mean())
    own = float(table_values(BEHAVIOR)[first].mean())
    (found,) = (p for p in report.policies if p.name == name)
    assert found.estimates["fqe"].value == pytest.approx(truth, abs=0.05)
    for estimator in ("pdis", "wis", "sn-pdis", "dr", "wdr"):
        one = found.estimates[estimator]
        assert one.interval is not None
        # Three standard errors: half of a 95 % interval is two of them.
        three = 0.75 * (one.interval[1] - one.interval[0])
        assert one.value == pytest.approx(truth, abs=three), estimator
        if name == "mixed":  # close to the behavior, so that weights are mild
            assert one.value == pytest.approx(truth, abs=0.1), estimator
    assert report.behavior.value == pytest.approx(own, abs=0.15)
    # One step of improvement is exact to first order only, but on the right side of the behavior.
    one_step = found.estimates["one-step"].value
    assert one_step is not None
    assert np.sign(one_step - own) == np.sign(truth - own)


def test_policies_of_a_table_are_ranked_as_they_are() -> None:
    report = table_report()
    names = [report.policies[i].name for i in report.order()]
    first = table()[1][table()[0].episode_start]
    worth = {n: table_values(policy)[first].mean() for n, policy in POLICIES.items()}
    assert names == sorted(worth, key=lambda name: -worth[name])
    assert report.agreement()["fqe", "wdr"] == 1.0
    for policy in report.policies:
        assert policy.estimates["fqe"].trusted, policy.sentence


def test_the_density_of_a_table_s_actions_is_found() -> None:
    data = table()[0]
    scaling = fit_scaling(data, normalize_observations=True)
    fitted = fit_behavior(data, to_device(data, scaling), scaling, steps=2_000, hidden=(16, 16))
    found = np.exp(fitted.log_prob(np.eye(3)[[0, 0, 1, 1, 2, 2]], np.array([0, 1] * 3)))
    np.testing.assert_allclose(found.reshape(3, 2), BEHAVIOR, atol=0.05)
    # A saved policy of discrete actions is valued by these probabilities, if it is to sample.
    part = Dataset.from_arrays(
        np.eye(3), np.array([0, 1, 0]), np.zeros(3), np.zeros(3, bool), action_count=2
    )
    target = Target.of_policy("cloned", fitted, part, stochastic=True)
    target.check(part)
    np.testing.assert_allclose(target.choice, found.reshape(3, 2), rtol=1e-4)
    assert target.log_density is None


# --- A line: s' = a·s + b·u + noise, reward −(s² + u²/10), policies u = −gain·s ---

A, B, NOISE, COST, STEPS = 0.9, 0.5, 0.1, 0.1, 8
GAINS = {"firm": 0.9, "gentle": 0.4, "wrong": -0.1}
OWN_GAIN, OWN_NOISE = 0.5, 0.4
NOISY_GAIN, NOISY_SPREAD = 0.6, 0.4


def line_values(
    gain: float, state: np.ndarray, steps: int | None = None, spread: float = 0.0
) -> np.ndarray:
    """−(p·s² + c) of u = −gain·s + spread·ε.

    p = 1 + gain²/10 + γ(a − b·gain)²p and c = spread²/10 + γ(c + p(noise² + b²spread²)).
    """
    p = c = 0.0
    for _ in range(1_000 if steps is None else steps):
        c = COST * spread**2 + DISCOUNT * (c + p * (NOISE**2 + B**2 * spread**2))
        p = 1.0 + COST * gain**2 + DISCOUNT * (A - B * gain) ** 2 * p
    return -(p * state**2 + c)


@functools.cache
def line() -> Dataset:
    """1,500 recordings of 8 steps, none of which ends."""
    draw = np.random.default_rng(1)
    state = draw.normal(size=1_500)
    columns: list[list[np.ndarray]] = [[], [], [], []]
    for _ in range(STEPS):
        action = -OWN_GAIN * state + OWN_NOISE * draw.normal(size=1_500)
        following = A * state + B * action + NOISE * draw.normal(size=1_500)
        step = (state, action, -(state**2 + COST * action**2), following)
        for column, values in zip(columns, step, strict=True):
            column.append(values)
        state = following
    state, action, reward, following = (np.stack(c, axis=1).reshape(-1) for c in columns)
    return Dataset.from_arrays(
        state[:, None],
        action[:, None],
        reward,
        np.zeros(len(state), bool),
        np.arange(len(state)) % STEPS == STEPS - 1,
        next_observation=following[:, None],
        action_low=-4.0,
        action_high=4.0,
        metadata={"name": "line"},
    )


@functools.cache
def line_report() -> Report:
    data = line()
    state, action = data.observation[:, 0], data.action[:, 0]
    noise = (action + OWN_GAIN * state) / OWN_NOISE
    density = -0.5 * noise**2 - np.log(OWN_NOISE * np.sqrt(2.0 * np.pi))
    density = np.where(data.recorded, density, 0.0)
    targets = [Target(name, -gain * data.observation) for name, gain in GAINS.items()]
    return estimate(data, [*targets, noisy()], OPTIONS, behavior=density)


def noisy() -> Target:
    """A stochastic policy: four actions drawn at every row, and its density of the data's."""
    data = line()
    draw = np.random.default_rng(4).normal(size=(len(data.reward), 4, 1))
    distance = (data.action + NOISY_GAIN * data.observation)[:, 0] / NOISY_SPREAD
    return Target(
        "noisy",
        -NOISY_GAIN * data.observation[:, None, :] + NOISY_SPREAD * draw,
        log_density=-0.5 * distance**2 - np.log(NOISY_SPREAD * np.sqrt(2.0 * np.pi)),
    )


@pytest.mark.parametrize("name", GAINS)
def test_values_of_a_linear_system_are_found(name: str) -> None:
    data = line()
    first = data.observation[data.episode_start, 0].astype(np.float64)
    truth = float(line_values(GAINS[name], first).mean())
    cut = float(line_values(GAINS[name], first, STEPS).mean())
    (found,) = (p for p in line_report().policies if p.name == name)
    # Recordings stop early, which these make up for …
    assert found.estimates["fqe"].value == pytest.approx(truth, rel=0.08)
    if name != "wrong":  # far from the behavior
        for estimator in ("dr", "wdr"):
            assert found.estimates[estimator].value == pytest.approx(truth, rel=0.1), estimator
    # … and these do not, and say so.
    assert truth < cut
    for estimator in ("pdis", "wis", "sn-pdis"):
        one = found.estimates[estimator]
        assert "recordings stop while 43% of the discounted weight is still to come" in one.reasons
        if name != "wrong" and estimator != "wis":
            assert one.value == pytest.approx(cut, rel=0.15), estimator
    assert any("effective episodes of 1,500" in r for r in found.estimates["wis"].reasons)


def test_policies_of_a_linear_system_are_ranked_as_they_are() -> None:
    report = line_report()
    state = line().observation[line().episode_start, 0].astype(np.float64)
    worth = {name: line_values(gain, state).mean() for name, gain in GAINS.items()}
    fqe = {p.name: p.estimates["fqe"].value for p in report.policies if p.name in GAINS}
    assert sorted(fqe, key=lambda n: -fqe[n]) == sorted(worth, key=lambda n: -worth[n])  # type: ignore[operator]


def test_a_stochastic_policy_is_worth_what_it_is_with_its_noise() -> None:
    """By draws in the critics' targets and by its own density in the weights."""
    data = line()
    first = data.observation[data.episode_start, 0].astype(np.float64)
    truth, cut, without = (
        float(line_values(NOISY_GAIN, first, steps, spread).mean())
        for steps, spread in ((None, NOISY_SPREAD), (STEPS, NOISY_SPREAD), (None, 0.0))
    )
    assert truth < 1.2 * without  # the noise costs more than estimates may be wrong by
    (found,) = (p for p in line_report().policies if p.name == "noisy")
    for estimator in ("fqe", "dr", "wdr"):
        assert found.estimates[estimator].value == pytest.approx(truth, rel=0.07), estimator
    for estimator in ("pdis", "sn-pdis"):
        one = found.estimates[estimator]
        assert one.value == pytest.approx(cut, rel=0.05), estimator
        assert one.effective is not None
        assert one.effective > 500  # close to the behavior, so weights are mild
