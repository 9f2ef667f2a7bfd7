"""self-limiters of PyPI: `redis_limiters.py URL`. No longer maintained, and not installable in newer Pythons."""

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
        # One connection for each waiter and each release, so that none waits for a connection.
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
