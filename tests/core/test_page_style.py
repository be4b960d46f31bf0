"""Colours that can be read, in light and in dark."""

import re

import pytest

from puorl.html.page import DARK, LIGHT, stylesheet


def luminance(colour):
    """Relative luminance as the Web Content Accessibility Guidelines define it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_rightly():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # a known pair


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_stand_out(theme):
    for name in ("ink", "muted", "link", "series-1", "series-2", "series-3", "series-4"):
        for ground in ("paper", "card"):
            assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
    for tone in ("good", "caution", "bad", "neutral"):
        assert contrast(theme[f"{tone}-ink"], theme[f"{tone}-paper"]) >= 4.5, tone


def test_every_colour_is_a_variable_of_both_themes():
    assert LIGHT.keys() == DARK.keys()
    rules = stylesheet()
    assert set(re.findall(r"var\(--([\w-]+)\)", rules)) == LIGHT.keys()
    assert "url(" not in rules
    assert "@import" not in rules


def test_braces_balance():
    rules = stylesheet()
    assert rules.count("{") == rules.count("}")
    assert "</" not in rules
