"""Who asks, for routes that need to know."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from medusakit.server.errors import ApiError, Failure, unauthorised
from medusakit.server.keys import Tenant
from medusakit.server.service import Service

_bearer = HTTPBearer(auto_error=False, description="one of the server's API keys, if it has any")


def the_service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def the_tenant(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None) -> Tenant:
    """Raises ApiError 401."""
    tenant = the_service(request).keys.tenant(request.headers.get("authorization"))
    if tenant is None:
        raise unauthorised()
    return tenant


def the_admin(tenant: Annotated[Tenant, Depends(the_tenant)]) -> Tenant:
    """Raises ApiError 403 for a key without the mark."""
    if not tenant.admin:
        message = "this API key may not administrate; mark one as admin:KEY in the server's key file"
        raise ApiError(Failure(403, "permission_error", "admin_key_required", message))
    return tenant


Admin = Annotated[Tenant, Depends(the_admin)]
Asking = Annotated[Tenant, Depends(the_tenant)]
Served = Annotated[Service, Depends(the_service)]
