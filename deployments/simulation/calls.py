"""The ends of a simulated stream, with gRPC's interface. The stub and the servicer of the service
run on these as they do on grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any

import grpc

from deployments.simulation.network import Host, Network, Parse, Serialize, Stream, refusal
from deployments.simulation.timeline import Process
from deployments.wire.liveness import PeerTimeoutError


class Caller(Process):
    """A process that opens streams to a host."""

    network: Network

    def opened(self, stream: Stream) -> None:
        """Called when the process has opened a stream."""
        raise NotImplementedError

    def gave_up(self, stream: Stream) -> None:
        """Called when the process takes the host's silence for the end of a stream."""
        raise NotImplementedError

    def has_read(self, message: Any) -> None:
        """Called when the process's code has received a message of the host."""

    def written_with(self, message: Any) -> Iterable[Any]:
        """Return the messages that are really sent when the process's code has written
        `message`."""
        return (message,)


class Channel:
    """The part of grpc.aio.Channel that a stub needs. Leaving it ends its calls."""

    def __init__(self, client: Caller, server: Host) -> None:
        self._client = client
        self._server = server
        self._calls: list[_Call] = []

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, kind: object, error: object, where: object) -> None:
        for call in self._calls:
            if isinstance(error, PeerTimeoutError):
                self._client.gave_up(call.stream)
            call.leave()

    def stream_stream(
        self, path: str, request_serializer: Serialize, response_deserializer: Parse, **_: object
    ) -> Callable[..., _Call]:
        return partial(self._call, path, request_serializer, response_deserializer)

    def unary_unary(self, path: str, **_: object) -> Callable[..., object]:
        def refuse(*_: object, **__: object) -> object:
            raise AssertionError(f"{path}: no simulated process asks for it")

        return refuse

    def _call(
        self,
        path: str,
        serialize: Serialize,
        parse: Parse,
        requests: AsyncIterator[Any],
        **_: object,
    ) -> _Call:
        client = self._client
        stream = client.network.connect(client, self._server, path)
        client.opened(stream)
        call = _Call(client, stream, requests, serialize, parse)
        self._calls.append(call)
        return call


class _Call:
    """A grpc.aio.StreamStreamCall."""

    def __init__(
        self,
        client: Caller,
        stream: Stream,
        requests: AsyncIterator[Any],
        serialize: Serialize,
        parse: Parse,
    ) -> None:
        self._client = client
        self.stream = stream
        self._parse = parse
        self._writer = asyncio.create_task(self._write(requests, serialize))
        stream.on_client_end = self._writer.cancel

    def leave(self) -> None:
        self._writer.cancel()
        self.stream.leave()

    def __aiter__(self) -> _Call:
        return self

    async def __anext__(self) -> Any:
        payload = await self.stream.down.read()
        if payload is None:
            raise StopAsyncIteration
        message = self._parse(payload)
        self._client.has_read(message)
        return message

    async def _write(self, requests: AsyncIterator[Any], serialize: Serialize) -> None:
        async for message in requests:
            for sent in self._client.written_with(message):
                await self.stream.write_up(sent, serialize)
        self.stream.up.end_behind()


class Server:
    """The part of grpc.aio.Server that a servicer needs, for one life of a process."""

    def __init__(self, *, wrote: Callable[[Stream, Any], None]) -> None:
        """`wrote` is called with every message that a handler has written."""
        self._handlers: dict[str, Any] = {}
        self._wrote = wrote
        self._tasks: dict[Stream, asyncio.Task[None]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore gRPC's older way to register the same handlers."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self._handlers |= {f"/{service}/{name}": one for name, one in handlers.items()}

    def accept(self, stream: Stream) -> None:
        task = asyncio.create_task(self._serve(stream))
        self._tasks[stream] = task
        stream.on_server_end = task.cancel

    async def _serve(self, stream: Stream) -> None:
        handler = self._handlers[stream.path]
        requests = self._requests(stream, handler.request_deserializer)
        try:
            async for message in handler.stream_stream(requests, _Context()):
                await stream.write_down(message, handler.response_serializer)
                self._wrote(stream, message)
            stream.close()
        except _AbortedError as error:
            stream.close(refusal(error.code, error.details))
        except Exception as error:
            stream.server.uncaught(error)
        finally:
            del self._tasks[stream]

    async def _requests(self, stream: Stream, parse: Parse) -> AsyncIterator[Any]:
        while (payload := await stream.up.read()) is not None:
            yield parse(payload)


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _Context:
    """A grpc.aio.ServicerContext."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise _AbortedError(code, details)
