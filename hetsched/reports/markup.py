"""HTML and SVG elements. Text and attributes are escaped: names in models are not to be trusted."""

from __future__ import annotations

from markupsafe import Markup, escape


def el(tag: str, *children: object, **attributes: object) -> Markup:
    """An element. ``class_`` gives ``class`` and ``stroke_width`` gives ``stroke-width``; None leaves an attribute out."""
    parts = [f"<{tag}"]
    for key, value in attributes.items():
        if value is None:
            continue
        name = key.rstrip("_").replace("_", "-")
        parts.append(f' {name}="{number(value) if isinstance(value, float) else escape(value)}"')
    if tag in ("rect", "line", "path", "circle", "use") and not children:
        parts.append("/>")
    else:
        parts += [">", *(str(escape(c)) for c in children), f"</{tag}>"]
    return Markup("".join(parts))  # noqa: S704 - every part was escaped above


def join(parts: object) -> Markup:
    """Concatenate pieces, escaping those that are plain strings."""
    return Markup("").join(parts)  # type: ignore[arg-type]


def number(value: float, digits: int = 2) -> str:
    """A coordinate: at most ``digits`` decimals, no trailing zeros."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def percent(share: float) -> str:
    """A coordinate as a share of the width: ``0.125`` -> ``12.5%``."""
    return number(100 * share, 4) + "%"
