"""Streams whose reader does not read."""

import asyncio

from coordinator.server.bounded_streams import MOST, BoundedStream


async def read(stream):
    return [message async for message in iterate(stream)]


async def iterate(stream):
    while (message := await stream.get()) is not None:
        yield message


def test_messages_come_in_order_until_the_end():
    async def run():
        stream = BoundedStream()
        stream.put(1)
        stream.put(2)
        assert [await stream.get(), await stream.get()] == [1, 2]
        stream.end()
        stream.put(3)
        assert await read(stream) == []

    asyncio.run(run())


def test_a_stream_that_nobody_reads_ends_instead_of_growing():
    async def run():
        stream = BoundedStream()
        for number in range(3 * MOST):
            stream.put(number)
        assert await asyncio.wait_for(read(stream), 5) == []

    asyncio.run(run())


def test_a_launcher_that_reads_late_hears_the_latest_only():
    async def run():
        stream = BoundedStream(latest=True)
        for number in range(3 * MOST):
            stream.put(number)
        assert await stream.get() == 3 * MOST - 1

    asyncio.run(run())
