"""Tables as real logs are: what is guessed, sorted, cut, and named when it is odd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from leeward.data.hints import Hints
from leeward.data.table import read_table
from leeward.data.table_columns import TableColumns
from leeward.errors import DataError
from leeward.types import Box, Discrete

Write = Callable[..., Path]

PLAIN = """\
episode_id,t,obs_a,obs_b,action,reward,done,truncated,who
0,0,1.0,10,0.5,1,False,False,x
0,1,2.0,20,0.25,2,False,False,x
0,2,3.0,30,1.0,3,True,False,x
1,0,4.0,40,0.0,4,False,False,y
1,1,5.0,50,0.5,5,False,True,y
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str, name: str = "log.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return _write


def refusal(path: Path, **arguments: Any) -> str:
    with pytest.raises(DataError) as error:
        read_table(path, **arguments)
    assert "\n" not in str(error.value)
    return str(error.value).replace(f"{path}", "PATH")


def test_plain_names_are_guessed_and_reported(write: Write) -> None:
    dataset = read_table(write(PLAIN))
    assert dataset.observation.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]]
    assert dataset.start.tolist() == [0, 1, 2, 3]
    assert dataset.termination.tolist() == [False, False, True, False, False]
    assert dataset.truncation.tolist() == [False, False, False, False, True]
    assert dataset.episode_returns().tolist() == [6.0, 9.0]
    assert dataset.action_space == Box((0.0,), (1.0,))
    assert dataset.metadata["name"] == "log"
    assert dataset.metadata["notes"] == [
        "columns: observation = obs_a, obs_b; action = action; reward = reward; episode = "
        "episode_id; step = t; termination = done; truncation = truncated; not used: who",
        "action bounds taken from the data's own range",
    ]


def test_parquet_equals_csv(write: Write, tmp_path: Path) -> None:
    csv = write(PLAIN)
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pa.csv.read_csv(csv), path)
    assert read_table(path).content_hash() == read_table(csv).content_hash()


def test_columns_are_chosen_by_name_and_pattern(write: Write) -> None:
    path = write(
        "x_2,x_1,u,gain,patient,day,dead\n1,2,0.5,1,p,0,0\n3,4,0.5,1,p,1,0\n5,6,0.1,1,p,2,1\n"
    )
    columns = TableColumns(
        observation=("x_1", "x_*"),
        action="u",
        reward="gain",
        episode="patient",
        step="day",
        termination="dead",
    )
    dataset = read_table(path, columns=columns)
    assert dataset.observation.tolist() == [[2, 1], [4, 3], [6, 5]]
    assert dataset.termination.tolist() == [False, False, True]


def test_rows_are_sorted_by_episode_and_step(write: Write) -> None:
    lines = PLAIN.splitlines()
    shuffled = "\n".join([lines[0], lines[5], lines[2], lines[1], lines[4], lines[3]]) + "\n"
    dataset = read_table(write(shuffled))
    assert dataset.observation[:, 0].tolist() == [4, 5, 1, 2, 3]
    assert dataset.episode_returns().tolist() == [9.0, 6.0]
    assert (
        "3 rows were moved to sort by episode and step; row numbers in messages count the sorted "
        "rows"
    ) in dataset.metadata["notes"]


def test_missing_steps_cut_the_recording(write: Write) -> None:
    rows = "".join(f"0,{t},{t},{t % 2},1\n" for t in range(30) if t != 11)
    dataset = read_table(write("episode,step,obs,action,reward\n" + rows))
    assert dataset.episode_lengths().tolist() == [11, 18]
    assert np.flatnonzero(dataset.truncation).tolist() == [10, 28]
    assert 10 not in dataset.start
    assert (
        "steps are missing before 1 rows (first before line 13): the recording is taken as cut "
        "there"
    ) in dataset.metadata["notes"]


def test_irregular_steps_are_not_cut(write: Write) -> None:
    rows = "".join(f"0,{t * t},{t},0.5,1\n" for t in range(10))
    dataset = read_table(write("episode,step,obs,action,reward\n" + rows))
    assert dataset.episodes == 1
    assert "'step' advances irregularly: missing steps cannot be told" in dataset.metadata["notes"]


def test_times_order_rows(write: Write) -> None:
    dataset = read_table(
        write(
            "episode,time,obs,action,reward\n"
            "a,2024-01-01 00:10:00,2,0,1\na,2024-01-01 00:00:00,1,1,1\n"
        ),
        columns=TableColumns(step="time"),
    )
    assert dataset.observation[:, 0].tolist() == [1, 2]


def test_a_last_row_may_hold_the_observation_alone(write: Write) -> None:
    dataset = read_table(
        write(
            "episode,t,obs,action,reward,terminated\n"
            "0,0,1,0,5,False\n0,1,2,1,6,False\n0,2,3,,,\n1,0,4,1,7,True\n1,1,9,,,\n"
        )
    )
    assert dataset.observation[:, 0].tolist() == [1, 2, 3, 4, 9]
    assert dataset.recorded.tolist() == [True, True, False, True, False]
    assert dataset.start.tolist() == [0, 1, 3]
    assert dataset.truncation.tolist() == [False, True, False, False, False]
    assert dataset.action_space == Discrete(2)
    assert dataset.episode_returns().tolist() == [11.0, 7.0]


def test_done_that_marks_every_end_leaves_time_limits_out(write: Write) -> None:
    text = PLAIN.replace("False,True,y", "True,True,y")
    dataset = read_table(write(text))
    assert dataset.termination.tolist() == [False, False, True, False, False]
    assert dataset.truncation.tolist() == [False, False, False, False, True]
    assert (
        "'done' marks every end: where 'truncated' is true too, no task ended"
        in dataset.metadata["notes"]
    )


def test_without_an_episode_column_flags_and_falling_steps_end_episodes(write: Write) -> None:
    rows = "0,1,0,1,0\n1,2,1,1,1\n0,3,0,1,0\n1,4,1,1,0\n0,5,0,1,0\n1,6,0,1,0\n"
    dataset = read_table(write("t,obs,action,reward,terminal\n" + rows))
    assert dataset.episode_lengths().tolist() == [2, 2, 2]
    assert dataset.start.tolist() == [0, 1, 2, 4]
    assert "1 episodes begin where 't' falls back" in dataset.metadata["notes"]


def test_the_step_limit_ends_episodes_where_nothing_else_does(write: Write) -> None:
    rows = "".join(f"{row},0.5,1,0\n" for row in range(7))
    dataset = read_table(
        write("obs,action,reward,terminal\n" + rows), hints=Hints(max_episode_steps=3)
    )
    assert dataset.episode_lengths().tolist() == [3, 3, 1]
    assert dataset.start.tolist() == [0, 1, 3, 4]


def test_episodes_that_go_on_after_their_end_are_split(write: Write) -> None:
    rows = "0,0,1,0,1,0\n0,1,2,1,1,1\n0,2,3,0,1,0\n0,3,4,0,1,0\n"
    dataset = read_table(write("episode,t,obs,action,reward,terminal\n" + rows))
    assert dataset.episode_lengths().tolist() == [2, 2]
    assert (
        "1 rows end their episode but are followed by more of it (first at line 3): a new episode "
        "begins there"
    ) in dataset.metadata["notes"]


def test_text_actions_are_numbered(write: Write) -> None:
    rows = "0,1,left,1\n0,2,stay,1\n0,3,left,1\n"
    dataset = read_table(write("episode,obs,action,reward\n" + rows))
    assert dataset.action.tolist() == [0, 1, 0]
    assert (
        "actions are texts, numbered in alphabetical order: 0 = 'left', 1 = 'stay'"
        in dataset.metadata["notes"]
    )


def test_list_columns_and_categories_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table(
        {
            "observation": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
            "action": pa.array(["b", "a", "b"]).dictionary_encode(),
            "reward": pa.array([1.0, 2.0, 3.0], pa.float32()),
            "episode": pa.array(["x", "x", "x"]).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, path)
    dataset = read_table(path)
    assert dataset.observation.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert dataset.action.tolist() == [1, 0, 1]


def test_semicolons_quotes_and_byte_order_marks(write: Write) -> None:
    text = '\ufeff"episode";"obs x";"action";"reward"\n0;1.5;0.5;1\n0;2.5;0.5;1\n'
    dataset = read_table(write(text), columns=TableColumns(observation="obs x"))
    assert dataset.observation.tolist() == [[1.5], [2.5]]


def test_numbers_may_become_fractions_late_in_a_long_file(write: Write) -> None:
    rows = "".join(f"0,{row},{row},0.5,1\n" for row in range(200_000))
    path = write("episode,t,obs,action,reward\n" + rows + "0,200000,0.25,0.5,1\n")
    assert read_table(path).observation[-1, 0] == 0.25


def test_no_rewards_only_if_said(write: Write) -> None:
    path = write("episode,obs,action\n0,1,0.5\n0,2,0.25\n")
    assert refusal(path) == (
        "PATH: no column looks like the reward: name it with --reward, or say --reward none for "
        "imitation without rewards; the columns are episode, obs, action"
    )
    assert read_table(path, columns=TableColumns(reward="none")).reward.tolist() == [0, 0]


def test_missing_cells_are_kept_without_strict(write: Write) -> None:
    path = write("episode,obs,action,reward\n0,1,0.5,1\n0,,0.5,1\n0,3,0.5,1\n")
    dataset = read_table(path, hints=Hints(strict=False))
    assert np.isnan(dataset.observation[1, 0])


def test_missing_flags_are_false_and_said(write: Write) -> None:
    path = write("episode,obs,action,reward,done\n0,1,0.5,1,no\n0,2,0.5,1,\n0,3,0.5,1,yes\n")
    dataset = read_table(path)
    assert dataset.termination.tolist() == [False, False, True]
    assert "'done' is missing in 1 rows: taken as false" in dataset.metadata["notes"]


HEAD = "episode,t,obs,action,reward\n"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "missing cell": (
        HEAD + "0,0,1,0.5,1\n0,1,,0.5,1\n0,2,3,0.5,1\n",
        {},
        "PATH: 'obs' is missing at line 3: fill or remove such rows, or leave the column out",
    ),
    "infinite cell": (
        HEAD + "0,0,1,0.5,1\n0,1,inf,0.5,1\n0,2,3,0.5,1\n",
        {},
        "PATH: 'obs' is infinite at line 3: fill or remove such rows, or leave the column out",
    ),
    "missing action inside": (
        HEAD + "0,0,1,0.5,1\n0,1,2,,\n0,2,3,0.5,1\n",
        {},
        "PATH: action and reward are missing at line 3: fill them",
    ),
    "missing reward": (
        HEAD + "0,0,1,0.5,1\n0,1,2,0.5,\n0,2,3,0.5,1\n",
        {},
        "PATH: 'reward' is missing at line 3: fill or remove such rows, or leave the column out",
    ),
    "text": (
        HEAD + "0,0,red,0.5,1\n0,1,blue,0.5,1\n",
        {},
        "PATH: 'obs' holds text such as 'red': turn it into numbers (one column of 0 and 1 for "
        "each value), or leave it out",
    ),
    "decimal comma": (
        HEAD.replace(",", ";") + "0;0;1,5;0.5;1\n0;1;2,5;0.5;1\n",
        {},
        "PATH: 'obs' holds text such as '1,5': turn it into numbers (one column of 0 and 1 for "
        "each value), or leave it out",
    ),
    "time": (
        HEAD + "0,0,2024-01-01 00:00:00,0.5,1\n0,1,2024-01-02 00:00:00,0.5,1\n",
        {},
        "PATH: 'obs' holds times (2024-01-01 00:00:00): turn it into a number, such as seconds "
        "since the episode's start, or leave it out",
    ),
    "empty column": (
        HEAD + "0,0,,0.5,1\n0,1,,0.5,1\n",
        {},
        "PATH: 'obs' is empty in every row: leave the column out",
    ),
    "same step twice": (
        HEAD + "0,0,1,0.5,1\n0,1,2,0.5,1\n0,1,3,0.5,1\n",
        {},
        "PATH: line 3 and line 4 are the same step of the same episode ('t' = 1): remove one, or "
        "name the right columns",
    ),
    "missing episode": (
        HEAD + "0,0,1,0.5,1\n,1,2,0.5,1\n",
        {},
        "PATH: the episode 'episode' is missing at line 3",
    ),
    "missing step": (
        HEAD + "0,0,1,0.5,1\n0,,2,0.5,1\n",
        {},
        "PATH: the step 't' is missing at line 3",
    ),
    "odd flag": (
        "obs,action,reward,done\n1,0.5,1,no\n2,0.5,1,maybe\n",
        {},
        "PATH: 'done' must be true or false, line 3 holds 'maybe'",
    ),
    "flag of 2": (
        "obs,action,reward,done\n1,0.5,1,0\n2,0.5,1,2\n",
        {},
        "PATH: 'done' must be true or false, line 3 holds 2",
    ),
    "unknown name": (
        HEAD + "0,0,1,0.5,1\n",
        {"columns": TableColumns(reward="rewrd")},
        "PATH has no column 'rewrd' (--reward). Did you mean reward? The columns are episode, t, "
        "obs, action, reward",
    ),
    "pattern that matches nothing": (
        HEAD + "0,0,1,0.5,1\n",
        {"columns": TableColumns(observation="x_*")},
        "PATH has no column 'x_*' (--observation). The columns are episode, t, obs, action, reward",
    ),
    "one column for two things": (
        HEAD + "0,0,1,0.5,1\n",
        {"columns": TableColumns(action="obs")},
        "PATH: the column 'obs' is used for observation and for action",
    ),
    "two that look alike": (
        "obs,action,reward,done,terminal\n1,0.5,1,0,0\n",
        {},
        "PATH: the columns done and terminal both look like the termination: choose with "
        "--terminal",
    ),
    "nothing that looks like it": (
        "episode,x,action,reward\n0,1,0.5,1\n",
        {},
        "PATH: no column looks like the observation: name them with --observation (patterns such "
        "as 'x_*' work); the columns are episode, x, action, reward",
    ),
    "column twice": (
        "obs,obs,action,reward\n1,1,1,1\n",
        {},
        "PATH has the column 'obs' twice: rename one",
    ),
    "no row": (HEAD, {}, "PATH is empty: it has no row"),
    "empty": ("", {}, "PATH is empty (0 bytes)"),
    "ragged": (
        HEAD + "0,0,1,0.5,1\n0,1,2\n",
        {},
        "PATH cannot be read as a table: CSV parse error: Row #3: Expected 5 columns, got 3: 0,1,2",
    ),
    "two integer actions": (
        "episode,obs,action_a,action_b,reward\n0,1,0,1,1\n0,2,1,1,1\n",
        {},
        "log: actions are integers of shape (2,) a row, a multi-discrete space, which is not "
        "supported: give one integer a row, or for continuous actions --action-low and "
        "--action-high",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_with_what_where_and_what_to_do(write: Write, case: str) -> None:
    text, arguments, message = REFUSED[case]
    assert refusal(write(text), **arguments) == message


def test_unreadable_files_give_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    assert refusal(path).startswith("PATH cannot be read as a table: ")
    latin = tmp_path / "log.csv"
    latin.write_bytes("obs,größe\n1,2\n".encode("latin-1"))
    assert refusal(latin) == "PATH is not UTF-8 text: save it as UTF-8 CSV"
