"""What ships beside the code and is named to people: the example that a first run is made from."""

from __future__ import annotations

from pathlib import Path


def demo_recipe() -> Path:
    """`examples/demo.yaml`, in the installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "examples" / "demo.yaml"
    return installed if installed.exists() else package.parent / "examples" / "demo.yaml"
