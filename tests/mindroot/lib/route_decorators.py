"""Who may see a page."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, HTTPException, Request


def requires_role(role: str) -> Any:
    """A dependency that lets pass whoever has this role."""

    def role_checker(request: Request) -> bool:
        user = getattr(request.state, "user", None)
        if not user:
            raise HTTPException(status_code=401, detail="Not authenticated")
        if role not in user.roles:
            raise HTTPException(status_code=403, detail=f"User needs one of these roles: {(role,)}")
        return True

    return Depends(role_checker)
