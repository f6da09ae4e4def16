"""`python -m app.cli`: the same as `cockpit`, for a child that must use this interpreter."""

from __future__ import annotations

from app.cli.app import main

main()
