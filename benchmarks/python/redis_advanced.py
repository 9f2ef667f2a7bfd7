"""The Python library asyncio-advanced-semaphores, on Redis: `redis_advanced.py URL`."""

import asyncio
import logging
import sys

from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore
from redis.asyncio import Redis

import peer


class Advanced(peer.Peer):
    name = f"asyncio-advanced-semaphores ({peer.python()})"
    period = 1

    def __init__(self, url):
        self.url = url
        self.config = RedisConfig(url=url)

    def semaphore(self, name, slots, most):
        return Semaphore(self, f"python-{name}", slots)


class Semaphore:
    def __init__(self, home, name, slots):
        self.home = home
        self.line = f"{home.config.namespace}:semaphore_waiting:{name}"
        self.sem = RedisSemaphore(name=name, value=slots, config=home.config)

    async def acquire(self):
        return await self.sem.acquire()

    async def release(self, held):
        await self.sem.release(held.acquisition_id)

    async def waiting(self):
        async with Redis.from_url(self.home.url) as redis:
            return await redis.zcard(self.line)


if __name__ == "__main__":
    logging.disable()
    asyncio.run(peer.serve(Advanced(sys.argv[1])))
