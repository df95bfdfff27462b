"""Small pictures as SVG text: no script, no style attribute, the colour of the words around them."""

from collections.abc import Sequence

from markupsafe import Markup, escape

#: Units of a sparkline's own coordinates; its size on the page is the style sheet's.
_WIDTH, _HEIGHT = 120, 28
#: Units kept free above and below, so that no line is cut.
_EDGE = 2
#: A picture is stretched to its place; its strokes are not.
_ROUND = ' vector-effect="non-scaling-stroke"'


def sparkline(points: Sequence[float | None], sentence: str) -> Markup:
    """
    Draw points from left to right over a ground of zero; `sentence` says the same in words.

    None leaves a gap. The last point is marked. Nothing but zeros is a flat line at the bottom.
    """
    known = [point for point in points if point is not None]
    top = max(known, default=0) or 1
    step = _WIDTH / max(1, len(points) - 1)
    commands, was_gap, last = [], True, ""
    for index, point in enumerate(points):
        if point is None:
            was_gap = True
            continue
        x, y = index * step, _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * max(point, 0) / top
        commands.append(f"{'M' if was_gap else 'L'}{x:.1f} {y:.1f}")
        was_gap = False
        last = f'<path d="M{x:.1f} {y:.1f}h0" stroke="currentColor" stroke-width="5" stroke-linecap="round"{_ROUND}/>'
    return Markup(  # noqa: S704  # numbers of our own, and the sentence escaped
        f'<svg class="sparkline" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(sentence)}"><path d="{"".join(commands)}" fill="none" stroke="currentColor" '
        f'stroke-width="1.5" stroke-linejoin="round"{_ROUND}/>{last}</svg>'
    )


def bar(parts: Sequence[tuple[str, float, str]]) -> Markup:
    """
    Draw `(word, amount, kind)` side by side to their share of the whole; a legend beside it names them.

    Whatever is not nothing is at least a hair wide. Kinds are those of `state`, and give the colour.
    """
    whole = sum(amount for _, amount, _ in parts)
    widths = [max(100 * amount / whole, 0.6) if amount > 0 else 0 for _, amount, _ in parts] if whole else []
    scale = 100 / sum(widths) if widths else 1
    sentence = ", ".join(f"{amount:,.0f} {word}" for word, amount, _ in parts if amount) or "nothing"
    pieces, x = [], 0.0
    for (word, amount, kind), width in zip(parts, widths, strict=False):
        if width:
            pieces.append(
                f'<rect class="is-{escape(kind)}" x="{x:.2f}" y="0" width="{width * scale:.2f}" height="10">'
                f"<title>{amount:,.0f} {escape(word)}</title></rect>"
            )
            x += width * scale
    return Markup(  # noqa: S704  # as above
        f'<svg class="bar-picture" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(sentence)}">{"".join(pieces)}</svg>'
    )
