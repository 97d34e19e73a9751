"""A small online training, for tests of collecting."""

from __future__ import annotations

from leeward.collect import OnlineOptions

LINE, CORRIDOR = "LeewardTest/Line-v0", "LeewardTest/Corridor-v0"
ONLINE = OnlineOptions(
    steps=120,
    random_steps=30,
    batch_size=32,
    hidden=(16,),
    lr=1e-2,
    eval_every=25,
    eval_episodes=3,
    checkpoint_every=20,
)
