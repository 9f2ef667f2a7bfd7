"""The purger, from Python. The tests of `semafor-purge` check what it removes."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import until
from semafor.purge import PurgeProgress, Purger


def make_tree(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"{number % 10}" / f"{number}").mkdir(parents=True)
    (root / "kept").mkdir()
    (root / "kept" / "file").touch()


def test_summary_of_a_purge_and_of_a_dry_run(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 100)

    async def program() -> None:
        would = await Purger(tmp_path, dry_run=True).purge()
        assert (would.dirs_removed, would.dry_run) == (110, True)
        done = await Purger(str(tmp_path), max_concurrency_deletion=4, memory_limit_mb=4500).purge()
        assert (done.dirs_removed, done.dry_run, done.errors, done.stopped_by) == (110, False, 0, "completed")
        assert done.errors_by_kind == {} and done.elapsed > 0 and done.peak_memory_bytes > 0

    run(program())
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_directory_limit_is_exact(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 100)

    async def program() -> None:
        done = await Purger(tmp_path, max_empty_dirs_to_delete=7).purge()
        assert (done.dirs_removed, done.stopped_by) == (7, "limit")

    run(program())


def test_on_progress_is_called_in_the_event_loop(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 300)
    seen: list[PurgeProgress] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()

        def on_progress(progress: PurgeProgress) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append(progress)

        await Purger(tmp_path, rate=300, on_progress=on_progress, progress_interval=0.01).purge()

    run(program())
    assert len(seen) > 1 and all(one.dirs_removed <= other.dirs_removed for one, other in zip(seen, seen[1:]))


@pytest.mark.parametrize("limit, stopped_by", [(0, "completed"), (1, "limit")])
def test_last_progress_is_reported_before_purge_returns(run: Any, tmp_path: Path, limit: int, stopped_by: str) -> None:
    make_tree(tmp_path, 10)
    seen: list[PurgeProgress] = []

    async def program() -> None:
        purger = Purger(tmp_path, max_empty_dirs_to_delete=limit, on_progress=seen.append, progress_interval=1000)
        done = await purger.purge()
        [last] = seen
        assert (last.dirs_removed, last.dirs_scanned) == (done.dirs_removed, done.dirs_scanned)
        assert (done.stopped_by, last.elapsed) == (stopped_by, done.elapsed)
        assert last.fraction == 1.0 or limit

    run(program())


def test_repr_of_a_dry_run_says_would_be_removed(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 10)
    would, done = run(Purger(tmp_path, dry_run=True).purge()), run(Purger(tmp_path).purge())
    assert repr(would) == "<PurgeSummary: 20 directories and 0 files would be removed, 0 errors, completed>"
    assert repr(done) == "<PurgeSummary: 20 directories and 0 files removed, 0 errors, completed>"


def test_cancelled_task_stops_the_purge_first(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 1000)

    async def program() -> None:
        begun = asyncio.Event()
        purger = Purger(tmp_path, rate=50, on_progress=lambda _: begun.set(), progress_interval=0.01)
        task = asyncio.create_task(purger.purge())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = len(list(tmp_path.rglob("*")))
        assert left > 500
        await asyncio.sleep(0)
        assert len(list(tmp_path.rglob("*"))) == left

    run(program())


def test_closed_coroutine_stops_the_purge(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 1000)

    def threads() -> list[str]:
        names = []
        for thread in Path("/proc/self/task").iterdir():
            # The thread may end meanwhile.
            with suppress(OSError):
                names.append((thread / "comm").read_text())
        return [name for name in names if name.startswith("semafor-purge")]

    async def program() -> None:
        begun = asyncio.Event()
        purge = Purger(tmp_path, rate=50, on_progress=lambda _: begun.set(), progress_interval=0.01).purge()
        purge.send(None)
        await begun.wait()
        purge.close()
        await until(lambda: not threads())

    run(program())
    assert len(list(tmp_path.rglob("*"))) > 500


def test_invalid_roots_and_patterns_are_refused(run: Any, tmp_path: Path) -> None:
    async def program() -> None:
        with pytest.raises(FileNotFoundError):
            await Purger(tmp_path / "missing").purge()
        with pytest.raises(ValueError, match="belongs to the system"):
            await Purger("/etc").purge()
        with pytest.raises(ValueError, match="pattern"):
            await Purger(tmp_path, exclude=["["]).purge()

    run(program())


def test_old_files_are_removed_and_excluded_entries_kept(run: Any, tmp_path: Path) -> None:
    make_tree(tmp_path, 10)

    async def program() -> None:
        done = await Purger(tmp_path, max_age=0, exclude=["3"], min_age=0).purge()
        assert done.files_removed == 1

    run(program())
    assert [each.name for each in tmp_path.iterdir()] == ["3"]


def test_files_rewritten_before_their_removal_stay_and_are_counted(run: Any, tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(12)]
    for file in files:
        file.write_text("old")
        os.utime(file, (0, 0))
    rewritten: list[Path] = []
    seen: list[PurgeProgress] = []

    def rewrite(progress: PurgeProgress) -> None:
        seen.append(progress)
        if progress.files_removed and not rewritten:
            for file in files:
                with suppress(FileNotFoundError), file.open("r+") as opened:
                    opened.write("new")
                    rewritten.append(file)

    async def program() -> None:
        done = await Purger(tmp_path, max_age=60, rate=10, on_progress=rewrite, progress_interval=0.01).purge()
        left = [file for file in files if file.exists()]
        # One of them may have been removed just after it was rewritten.
        assert len(rewritten) > 1 and len(set(rewritten) - set(left)) <= 1
        assert done.files_removed == len(files) - len(left)
        assert 1 <= done.files_changed <= len(left) and done.dirs_changed == 0
        assert seen[-1].files_changed == done.files_changed

    run(program())


def test_single_string_is_one_pattern(run: Any, tmp_path: Path) -> None:
    for name in (".snapshot", "s", "other"):
        (tmp_path / name / "empty").mkdir(parents=True)
    run(Purger(tmp_path, exclude=".snapshot").purge())
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")] == [".snapshot", ".snapshot/empty"]
