"""What is sent with a request, read as far as it may go and no further: strangers may send anything."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

__all__ = ["BodyRefused", "read_body"]

_DIGITS = 12


class BodyRefused(Exception):
    """It is too long, or was not sent to its end. ``status``: of the answer to it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def read_body(request: Request, most: int) -> bytes:
    """At most ``most`` bytes. Raises :class:`BodyRefused` as soon as it is known that there are more."""
    too_long = BodyRefused(413, f"that is more than {most:,} bytes")
    told = request.headers.get("content-length", "")
    if told.isascii() and told.isdigit() and (len(told) > _DIGITS or int(told) > most):
        raise too_long
    read = bytearray()
    try:
        async for chunk in request.stream():
            read += chunk
            if len(read) > most:
                raise too_long
    except ClientDisconnect:
        raise BodyRefused(400, "that was not sent to its end") from None
    return bytes(read)
