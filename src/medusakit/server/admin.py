"""Routes for who runs the server: other heads, back to the old ones, speculation on and off."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from anyio import to_thread
from fastapi import APIRouter

from medusakit.server.access import Admin, Served
from medusakit.server.errors import bad_request
from medusakit.server.logs import log
from medusakit.server.wire import HeadsRequest, SpeculationRequest

router = APIRouter(prefix="/admin")


@router.post("/heads")
async def replace_heads(body: HeadsRequest, service: Served, tenant: Admin) -> dict[str, Any]:
    """Draft with other heads from the next step on. Heads of another model, or broken ones, change nothing (409)."""
    card = await to_thread.run_sync(service.replace_drafting, body.path, body.drafter)
    log("heads replaced", heads=card.heads, drafter=card.drafter)
    return asdict(card)


@router.post("/heads/rollback")
async def roll_back(service: Served, tenant: Admin) -> dict[str, Any]:
    """Draft with what drafted before the last replacement."""
    card = await to_thread.run_sync(service.roll_back)
    if card is None:
        raise bad_request("nothing_to_roll_back", "no heads were replaced yet", status=409)
    log("heads rolled back", heads=card.heads, drafter=card.drafter)
    return asdict(card)


@router.post("/speculation")
async def speculation(body: SpeculationRequest, service: Served, tenant: Admin) -> dict[str, bool]:
    """Decode plainly from the next step on, or draft again. The output is the same."""
    service.serving().scheduler.set_speculation(body.on)
    log("speculation switched", on=body.on)
    return {"speculation": body.on}
