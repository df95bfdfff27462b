"""Pictures, and the one file of somebody else's that pages load."""

import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import admin
from admin.monitoring.drawing import bar, sparkline

STATIC = Path(admin.__file__).parent / "static"


def test_the_file_of_others_is_the_one_that_was_taken_in() -> None:
    """Source: idiomorph 0.8.0 as its authors published it on npm (dist/idiomorph.min.js, LICENSE: 0BSD)."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").iterdir()}
    assert digests == {
        "idiomorph-0.8.0.min.js": "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96",
        "idiomorph-LICENSE.txt": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    }


def test_a_sparkline_says_in_words_what_it_draws_and_leaves_gaps() -> None:
    drawn = sparkline([0, 2, None, 4, 1], 'rose to 4 & "fell"')
    picture = ET.fromstring(drawn)
    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-label"] == 'rose to 4 & "fell"'
    path = picture[0].attrib["d"]
    assert path.count("M") == 2
    assert path.startswith("M0.0 26.0L30.0 14.0M90.0 2.0")


def test_nothing_at_all_is_still_a_picture() -> None:
    for points in ([], [None, None], [0, 0]):
        assert ET.fromstring(sparkline(points, "nothing")).attrib["aria-label"] == "nothing"
    assert ET.fromstring(bar([])).attrib["aria-label"] == "nothing"


def test_parts_share_a_bar_and_the_smallest_is_seen() -> None:
    picture = ET.fromstring(bar([("sent", 99_990, "ok"), ("failed", 10, "bad"), ("left", 0, "off")]))
    widths = [float(part.attrib["width"]) for part in picture]
    assert [part.attrib["class"] for part in picture] == ["is-ok", "is-bad"]
    assert abs(sum(widths) - 100) < 0.05
    assert widths[1] > 0.5
    assert picture.attrib["aria-label"] == "99,990 sent, 10 failed"


def test_no_template_has_anything_inline_that_the_pages_policy_refuses() -> None:
    inline = re.compile(r"<script(?![^>]*\bsrc=)|<style\b|\bstyle=|\bon[a-z]+=|javascript:", re.IGNORECASE)
    # Served under a policy of its own: it has no scripts.
    apart = {"api_docs.html"}
    templates = Path(admin.__file__).parent / "templates"
    found = {
        str(path.relative_to(templates)): hit.group()
        for path in templates.rglob("*.html")
        if path.name not in apart and (hit := inline.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}
