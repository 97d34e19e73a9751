"""Names, reference scores and the facts behind them."""

from __future__ import annotations

import numpy as np
import pytest

from leeward.data import registry
from leeward.data.load import load_dataset


def test_every_d4rl_name_has_its_facts() -> None:
    entries = [registry.find(name) for name in registry.names()]
    d4rl = [entry for entry in entries if entry is not None and entry.group != "shipped"]
    assert len(d4rl) == 147
    for entry in d4rl:
        assert str(entry.url).startswith("http://rail.eecs.berkeley.edu/datasets/offline_rl/")
        assert str(entry.url).endswith(".hdf5")
        assert entry.max_episode_steps is not None
        assert (entry.env is None) != (entry.no_env_reason is None)
        scores = registry.reference_scores(entry.name)
        assert scores is not None
        assert scores.maximum > scores.minimum
    assert len({entry.url for entry in d4rl}) == 147


def test_shipped_data_are_there_with_their_card_and_scores() -> None:
    entries = [registry.find(name) for name in registry.names()]
    shipped = [entry for entry in entries if entry is not None and entry.group == "shipped"]
    assert shipped
    sizes: dict[str | None, int] = {}
    for entry in shipped:
        assert entry.path is not None
        sizes[entry.env] = sizes.get(entry.env, 0) + entry.path.stat().st_size
        data = load_dataset(entry.name)
        assert 50_000 <= data.transitions <= 100_000
        card = entry.path.with_suffix(".md").read_text("utf-8")
        assert card.startswith(f"# {entry.name}\n\n{data.transitions:,} transitions of ")
        assert data.metadata["env"] == entry.env
        assert data.next_rows_chain()
        scores = registry.reference_scores(entry.name)
        assert scores is not None
        assert data.metadata["reference_scores"] == {
            "minimum": scores.minimum,
            "maximum": scores.maximum,
        }
        kept = data.metadata["file_metadata"]
        assert data.episode_returns().mean() == pytest.approx(kept["return_mean"], rel=1e-6)
        assert kept["command"] in card
    assert max(sizes.values()) < 15_000_000
    folder = shipped[0].path.parent
    names = [entry.name for entry in shipped]
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.hdf5" for name in names),
        *(f"{name}.md" for name in names),
    }


def test_names_accept_underscores_and_capitals() -> None:
    entry = registry.find("Hopper_Medium-v2")
    assert entry is not None
    assert entry.name == "hopper-medium-v2"
    assert entry.env == "Hopper-v4"
    assert entry.max_episode_steps == 1000


def test_names_without_an_environment_say_why() -> None:
    entry = registry.find("ant-medium-v2")
    assert entry is not None
    assert entry.env is None
    assert entry.no_env_reason == "D4RL's ant data has 111 observations, Ant-v4 has 27"


def test_wrong_names_get_the_nearest() -> None:
    assert registry.suggest("hoper-medium-v2").startswith(" Did you mean hopper-medium-v2")
    assert registry.suggest("xyz") == ""


@pytest.mark.parametrize(
    ("name", "returns", "score"),
    [
        # (return + 20.272305) / (3234.3 + 20.272305), by hand
        ("hopper-medium-v2", 3234.3, 100.0),
        ("hopper-expert-v0", -20.272305, 0.0),
        ("Hopper-v4", 1607.0138475, 50.0),
        ("Hopper-v5", 3234.3, 100.0),
        ("HalfCheetah-v4", -280.178953, 0.0),
        ("gymnasium_robotics:AdroitHandPen-v1", 3076.8331017826877, 100.0),
        ("antmaze-umaze-v2", 0.25, 25.0),
        ("ALE/Pong-v5", 14.6, 100.0),
        ("PongNoFrameskip-v4", -20.7, 0.0),
        ("Breakout", 30.5, 100.0),
    ],
)
def test_scores_by_name_and_environment(name: str, returns: float, score: float) -> None:
    result = registry.normalized_score(name, [returns, returns])
    assert result is not None
    np.testing.assert_allclose(result, [score, score], atol=1e-9)


@pytest.mark.parametrize("name", ["Walker2d-v5", "Pendulum-v1", "nothing", "my/Env-v0"])
def test_no_score_where_no_reference_is_known(name: str) -> None:
    assert registry.normalized_score(name, 1.0) is None


def test_scores_by_metadata_prefer_the_data_sets_own() -> None:
    metadata = {"env": "Hopper-v4", "reference": "halfcheetah-medium-v2"}
    by_name = registry.normalized_score("HalfCheetah-v4", 100.0)
    assert registry.normalized_score(metadata, 100.0) == by_name
    assert registry.normalized_score({"env": "Hopper-v4"}, 3234.3) == 100.0
    own = {**metadata, "reference_scores": {"minimum": 0.0, "maximum": 200.0}}
    assert registry.normalized_score(own, 100.0) == 50.0
    assert registry.normalized_score({"name": "x"}, 100.0) is None


def test_step_limits_of_environments() -> None:
    assert registry.step_limit("HalfCheetah-v4") == 1000
    assert registry.step_limit("AdroitHandPen-v1") == 100
    assert registry.step_limit("Walker2d-v5") is None
    assert registry.step_limit(None) is None
