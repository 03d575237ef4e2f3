"""Routes that say how the server is: for probes, Prometheus, people and their pages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from medusakit.server.access import Served, the_tenant
from medusakit.server.errors import unknown_model
from medusakit.server.metrics import CONTENT_TYPE
from medusakit.server.service import Service, Serving

open_router = APIRouter()
router = APIRouter(dependencies=[Depends(the_tenant)])


@open_router.get("/health")
async def health() -> dict[str, str]:
    """The process is alive."""
    return {"status": "ok"}


@open_router.get("/ready")
async def ready(service: Served) -> Response:
    """200 when requests are answered, 503 while the model loads and while the server stops."""
    status = service.status
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


@router.get("/metrics")
async def metrics(service: Served) -> Response:
    """Prometheus' text format."""
    return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})


@router.get("/v1/state")
async def state(service: Served) -> Response:
    """Jobs, cache, speculation and the last minute, without prompts."""
    return JSONResponse(service.state())


@router.get("/v1/models")
async def models(service: Served) -> dict[str, Any]:
    """What is served, under every name."""
    serving = service.serving()
    return {"object": "list", "data": [_model(service, serving, name) for name in service.names(serving)]}


@router.get("/v1/models/{model_id:path}")
async def model(model_id: str, service: Served) -> dict[str, Any]:
    """One of them."""
    serving = service.serving()
    names = service.names(serving)
    if model_id not in names:
        raise unknown_model(model_id, names)
    return _model(service, serving, model_id)


def _model(service: Service, serving: Serving, name: str) -> dict[str, Any]:
    card = serving.card
    about = {"id": name, "object": "model", "created": service.started_at, "owned_by": "medusakit"}
    medusa = {"drafter": card.drafter, "heads": card.heads or None, "weights": card.weights}
    return about | {"max_model_len": card.context, "medusa": medusa}
