"""Work on a Ray cluster: two nodes on this machine, and one of them is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.work.executor import Item, Work, executor_for
from kibitz.games import get_game
from kibitz.studies.tournaments import tournament
from kibitz.studies.tournaments.standings import standings
from kibitz.studies.tournaments.tournament import TournamentPlan, play
from tests.core.work_items import WORK, items, prepare, visible_gpus

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timed,  # alone: on a busy machine nodes miss heartbeats, and items wait for a processor
    pytest.mark.filterwarnings("ignore:.*os.fork:RuntimeWarning"),  # Ray starts programs after JAX was imported
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves files and sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PLAYERS = ("heuristic", "partner:conceder")  # one pairing: each of the four workers compiles it for itself
BATCHES, BATCH_GAMES = 2100, 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray_cluster = pytest.importorskip("ray.cluster_utils")
    node = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    made = ray_cluster.Cluster(initialize_head=True, head_node_args=node)
    yield made
    made.shutdown()


def test_a_tournament_ends_with_the_same_table_after_a_node_was_killed(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tournament, "BATCH_GAMES", BATCH_GAMES)
    game = get_game("deal_or_no_deal")
    plan = TournamentPlan(game, game.default_options, PLAYERS, BATCH_GAMES * BATCHES)
    second = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    played = killed = 0

    def progress(count: int) -> None:
        nonlocal played, killed
        played += count
        if not killed and played > plan.episodes / 2:
            for kind in list(second.all_processes.values()):
                for process in kind:
                    os.kill(process.process.pid, signal.SIGKILL)
                    killed += 1

    with executor_for(ray=cluster.address) as executor:
        assert executor.workers == 2
        found = play(plan, tmp_path / "ray", progress=progress, executor=executor)
    assert killed and played == plan.episodes
    with executor_for(workers=2) as executor:
        expected = play(plan, tmp_path / "local", executor=executor)
    assert found.rows == expected.rows and len(found.rows) == BATCHES
    tables = [standings(PLAYERS, plan.episodes, rows).as_dict() for rows in (found.rows, expected.rows)]
    assert repr(tables[0]) == repr(tables[1])


def test_reports_errors_and_lost_workers_come_back_from_a_cluster(cluster: Any, tmp_path: Path) -> None:
    told = []
    with executor_for(ray=cluster.address) as executor:
        found = executor.run(WORK, items(5, tells=1), lambda item, said: told.append(said["x"]))
        assert sorted(value for _, value in found) == [100, 101, 104, 109, 116] and sorted(told) == [0, 1, 2, 3, 4]
        dying = [Item({"x": x, "die_unless": str(tmp_path / str(x))}) for x in range(2)]
        assert sorted(value for _, value in executor.run(WORK, dying)) == [100, 101]
        with pytest.raises(BadInput, match="cannot be squared"):
            list(executor.run(WORK, items(1, raises=1)))
        for gpu, visible in ((True, 1), (False, 0)):
            ((_, seen),) = executor.run(Work(prepare, visible_gpus, {"base": 0}, trains=gpu), items(1))
            assert seen == visible


def test_an_address_without_a_cluster_is_one_sentence() -> None:
    pytest.importorskip("ray")
    with pytest.raises(BadInput, match=r"no Ray cluster at '127\.0\.0\.1:1' \(Connection refused\)"):
        executor_for(ray="127.0.0.1:1")
