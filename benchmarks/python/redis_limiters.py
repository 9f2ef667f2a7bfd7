"""self-limiters of PyPI: `redis_limiters.py URL`. It is not maintained any more, and many Pythons can't have it."""

import asyncio
import sys

try:
    import self_limiters
except ImportError as error:
    sys.exit(str(error))
from redis.asyncio import Redis

import peer


class Limiters(peer.Peer):
    name = f"self-limiters ({peer.python()})"

    def __init__(self, url):
        self.url = url

    def semaphore(self, name, slots, most):
        return Semaphore(self.url, f"limiters-{name}", slots, most)

    async def hold(self, count):
        raise peer.Skip("it has no heartbeats")


class Semaphore:
    def __init__(self, url, name, slots, most):
        self.url = url
        # A waiter takes a connection, and so does who releases; no time is lost on waiting for one.
        connections = most + slots + 1
        self.sem = self_limiters.Semaphore(
            name=name, capacity=slots, max_sleep=600, redis_url=url, connection_pool_size=connections
        )

    async def acquire(self):
        await self.sem.__aenter__()

    async def release(self, _held):
        await self.sem.__aexit__(None, None, None)

    async def waiting(self):
        async with Redis.from_url(self.url) as redis:
            return (await redis.info("clients"))["blocked_clients"]


if __name__ == "__main__":
    asyncio.run(peer.serve(Limiters(sys.argv[1])))
