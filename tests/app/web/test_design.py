"""The design language is one: the sheet keeps its contrast, the page about it says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.web.assets import STATIC_FOLDER

ROOT = Path(__file__).parents[3]
SHEET = (STATIC_FOLDER / "cockpit.css").read_text("utf-8")
DESIGN = (ROOT / "docs/design.md").read_text("utf-8")
MEASURED = re.findall(
    r"^\| `--([\w-]+)` on `--([\w-]+)` \|.*\| ([\d.]+) \| ([\d.]+) \|$", DESIGN, re.MULTILINE
)
GRAPHIC = {"frame", "chart-d", *(f"r{n}" for n in range(1, 11))}
"""Lines and marks alone."""


def roles() -> tuple[dict[str, str], dict[str, str]]:
    """The colours of the light and of the dark scheme, by role."""
    head, _, rest = SHEET.partition("@media (prefers-color-scheme: dark)")
    dark, _, _ = rest.partition("* { box-sizing")
    light = _declared(head)
    return light, light | _declared(dark)


def _declared(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*([^;]+);", text))


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.requirement("UI-10")
def test_every_role_keeps_its_contrast_in_both_schemes_as_the_page_says() -> None:
    """4.5 : 1 for text, 3 : 1 for lines of charts; a changed colour is measured again."""
    assert len(MEASURED) == 29
    for scheme, told in zip(roles(), ((2, "light"), (3, "dark")), strict=True):
        for row in MEASURED:
            ratio = contrast(scheme[row[0]], scheme[row[1]])
            assert ratio >= (3.0 if row[0] in GRAPHIC else 4.5), (row, told[1])
            assert round(ratio, 1) == float(row[told[0]]), (row, told[1])


def test_every_size_of_the_type_scale_is_told_and_no_other_is_used() -> None:
    """Six sizes; a seventh would be a page of another house."""
    tokens = set(re.findall(r"--t-[\w-]*(?=:)", SHEET))
    assert len(tokens) == 6
    for token in tokens:
        assert f"`{token}`" in DESIGN, token
    for sheet in STATIC_FOLDER.glob("*.css"):
        screen = sheet.read_text("utf-8").partition("@media print")[0]
        for size in re.findall(r"font-size:\s*([^;]+);", screen):
            relative = re.fullmatch(r"[\d.]+em", size)
            assert size.startswith("var(--t-") or relative, (sheet.name, size)


def test_there_are_two_weights_and_two_faces() -> None:
    """Each weight of each face is one more that a new tab looks up before its first frame. Formulas
    of answers have a face of their own.
    """
    faces = {"var(--sans)", "var(--mono)", "var(--math)"}
    for sheet in STATIC_FOLDER.glob("*.css"):
        text = sheet.read_text("utf-8")
        weights = set(re.findall(r"font-weight:\s*([^;]+);", text))
        assert weights <= {"400", "var(--strong)"}, sheet.name
        assert set(re.findall(r"font-family:\s*([^;]+);", text)) <= faces


def test_every_component_of_the_page_stands_in_the_sheet() -> None:
    """And the page promises nothing that is gone."""
    components = DESIGN.partition("## Components")[2].partition("## Motion")[0]
    sheets = "".join(sheet.read_text("utf-8") for sheet in STATIC_FOLDER.glob("*.css"))
    for name in re.findall(r"\.([a-z]+)`", components):
        assert f".{name}" in sheets, name


def test_no_page_brings_a_colour_without_a_role() -> None:
    """A page's own sheet speaks in roles, or the dark scheme would not hold there.

    Paper is white whatever the screen is, and marks over a picture belong to no scheme.
    """
    for sheet in STATIC_FOLDER.glob("*.css"):
        if sheet.name == "cockpit.css":
            continue
        text = re.sub(r"/\*.*?\*/", "", sheet.read_text("utf-8"), flags=re.DOTALL)
        screen = text.partition("@media print")[0]
        own = [line for line in screen.splitlines() if not line.startswith(".boxes ")]
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", "\n".join(own)) == [], sheet.name
