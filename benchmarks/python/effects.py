"""The works of coop.py for `semafor.effects`."""

from coop import PAIRS, PARKED, PERMITS, SWITCHES
from semafor.effects import AcquireSemaphore, CreateSemaphore, Gather, ReleaseSemaphore, Spawn, do, outcome_of


@do
def pairs():
    semaphore = yield CreateSemaphore(PERMITS)
    for _ in range(PAIRS):
        yield AcquireSemaphore(semaphore)
        yield ReleaseSemaphore(semaphore)


@do
def visit(semaphore):
    yield AcquireSemaphore(semaphore)
    yield ReleaseSemaphore(semaphore)


@do
def parked():
    semaphore = yield CreateSemaphore(PERMITS)
    for _ in range(PERMITS):
        yield AcquireSemaphore(semaphore)
    tasks = []
    for _ in range(PARKED):
        task = yield Spawn(visit(semaphore))
        tasks.append(task)
    for _ in range(PERMITS):
        yield ReleaseSemaphore(semaphore)
    yield Gather(*tasks)


@do
def player(own, other):
    for _ in range(SWITCHES // 2):
        yield AcquireSemaphore(own)
        yield ReleaseSemaphore(other)


@do
def ping_pong():
    # Each is released by the other player.
    ping = yield CreateSemaphore(1, signal=True)
    pong = yield CreateSemaphore(1, signal=True)
    yield AcquireSemaphore(ping)
    yield AcquireSemaphore(pong)
    first = yield Spawn(player(ping, pong))
    second = yield Spawn(player(pong, ping))
    yield ReleaseSemaphore(ping)
    yield Gather(first, second)


WORKS = {
    "effects, acquire+release": lambda: outcome_of(pairs()).result(),
    "effects, 10k tasks parked on 3 permits": lambda: outcome_of(parked()).result(),
    "effects, ping-pong": lambda: outcome_of(ping_pong()).result(),
}
