"""The examples of doeff's semaphores, word for word except the imports."""

from __future__ import annotations

from semafor.effects import do, CreateSemaphore, AcquireSemaphore, ReleaseSemaphore
from semafor.effects import Spawn, Gather, Wait, Log, Delay
from semafor.effects import outcome_of, run


@do
def rate_limited_work():
    sem = yield CreateSemaphore(3)  # max 3 concurrent workers

    tasks = []
    for i in range(10):
        task = yield Spawn(worker(sem, i))
        tasks.append(task)

    results = yield Gather(*[Wait(t) for t in tasks])
    return results

@do
def worker(sem, worker_id):
    yield AcquireSemaphore(sem)
    try:
        yield Log(f"Worker {worker_id} in critical section")
        yield Delay(0.1)
        return f"result-{worker_id}"
    finally:
        yield ReleaseSemaphore(sem)


@do
def mutex_example():
    lock = yield CreateSemaphore(1)  # binary semaphore = mutex

    task_a = yield Spawn(critical_section(lock, "A"))
    task_b = yield Spawn(critical_section(lock, "B"))

    yield Gather(Wait(task_a), Wait(task_b))

@do
def critical_section(lock, name):
    yield AcquireSemaphore(lock)
    try:
        yield Log(f"{name}: entered critical section")
        # ... exclusive access guaranteed ...
    finally:
        yield ReleaseSemaphore(lock)


def test_rate_limited_workers() -> None:
    outcome = outcome_of(rate_limited_work())
    assert outcome.result() == [f"result-{number}" for number in range(10)]
    assert [line.at for line in outcome.log] == [0, 0, 0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3]
    assert [line.text for line in outcome.log] == [f"Worker {number} in critical section" for number in range(10)]
    assert outcome.elapsed == 0.4
    assert outcome.complaints == []


def test_binary_semaphore_as_mutex() -> None:
    outcome = outcome_of(mutex_example())
    assert outcome.result() is None
    assert [line.text for line in outcome.log] == ["A: entered critical section", "B: entered critical section"]
    assert outcome.elapsed == 0


def test_a_program_can_be_run_again() -> None:
    program = rate_limited_work()
    assert run(program) == run(program)
