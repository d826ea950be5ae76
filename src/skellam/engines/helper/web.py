"""The helper on HTTPS: an ASGI app with one path for messages, and the server that runs it.

Every message is signed by the leader, and every reply by the helper, so that TLS keeps what
travels from strangers and nothing rests on it. Errors say what was refused, and hold no data.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from skellam.errors import BudgetError, DomainError, MissingExtraError, ProtocolError, SkellamError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from skellam.engines.helper.config import HelperConfig
    from skellam.engines.helper.service import HelperService

PATH: Final = "/v1/message"
MEDIA_TYPE: Final = "application/octet-stream"
_MAX_CONNECTIONS: Final = 128
"""Each may make the helper hold one message before its signature can be checked."""
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger("skellam.helper")


def app(service: HelperService) -> Starlette:
    """Return the ASGI app: ``POST /v1/message`` and ``GET /v1/health``."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import ClientDisconnect
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the helper needs starlette and uvicorn: pip install 'skellam[helper]'"
        ) from error

    def refused(status: int, error: SkellamError) -> Response:
        _log.warning("refused: %s", error)
        return JSONResponse({"error": type(error).__name__, "text": str(error)}, status)

    async def message(request: Request) -> Response:
        body = bytearray()
        with suppress(ClientDisconnect):
            async for part in request.stream():
                body += part
                if len(body) > service.max_request:
                    text = f"a message has at most {service.max_request} bytes here"
                    return refused(413, ProtocolError(text))
        try:
            reply = await run_in_threadpool(service.handle, bytes(body))
        except (ProtocolError, BudgetError, DomainError) as error:
            return refused(422, error)
        except SkellamError as error:  # its own files: the text is for the operator
            _log.error("cannot answer: %s", error, exc_info=True)
            return refused(500, ProtocolError("the helper cannot answer; its log says why"))
        return Response(reply, media_type=MEDIA_TYPE)

    async def health(_: Request) -> Response:
        return JSONResponse({"helper": service.public.hex()})

    return Starlette(
        routes=[
            Route(PATH, message, methods=["POST"]),
            Route("/v1/health", health, methods=["GET"]),
        ]
    )


def serve(config: HelperConfig, service: HelperService, *, host: str, port: int) -> None:
    """Serve until the process is told to stop; without TLS on this machine alone."""
    if config.tls is None and host not in LOOPBACK:
        raise DomainError(
            f"host must be one of {', '.join(LOOPBACK)} without a certificate, got {host!r}; name "
            "certificate and key in a table [tls], or put a proxy that ends TLS in front"
        )
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "the helper needs starlette and uvicorn: pip install 'skellam[helper]'"
        ) from error
    certificate, key = (None, None) if config.tls is None else map(str, config.tls)
    uvicorn.run(
        app(service),
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        server_header=False,
        ws="none",
        lifespan="off",
        limit_concurrency=_MAX_CONNECTIONS,
    )
