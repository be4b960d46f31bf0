"""A picture of one of our pages on a sheet of its own, in the page's light and dark colours."""

from pathlib import Path
from string import Template

from puorl.html.page import DARK, LIGHT

HERE = Path(__file__).parent
RULES = Template("""
.sheet { fill: $card; stroke: $rule; } .grid { stroke: $rule; }
text { fill: $ink; stroke: $card; } .quiet { fill: $muted; } .mark-line { stroke: $muted; }
.place { fill: $card; } .ring { fill: none; }
.s1 { stroke: $series1; } .f1 { fill: $series1; } .s2 { stroke: $series2; } .f2 { fill: $series2; }
.s3 { stroke: $series3; } .f3 { fill: $series3; } .s4 { stroke: $series4; } .f4 { fill: $series4; }
""")
SHAPES = """
text { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }
.heading { font-size: 16px; font-weight: 650; }
.place { stroke-width: 1.6px; } .ring { stroke-opacity: .45; }
.area { fill-opacity: .3; stroke-width: 1.4; } .mark-line { stroke-dasharray: 3 3; }
.trace { fill: none; stroke-width: 2; stroke-linejoin: round; } .d2 { stroke-dasharray: 5 3; }
"""
WIDTH, HEIGHT = 400.0, 300.0
"""Pictures are of one size, so that they stand side by side."""


def write(
    name: str, heading: str, picture: str, below: str = "", *, height: float = HEIGHT
) -> None:
    """Write a sheet beside this file.

    Args:
        name: Of the file.
        heading: Above the picture.
        picture: An SVG element as `puorl.html.charts` makes it.
        below: More SVG, placed by itself.
        height: Of the sheet.
    """
    # Colours by name, not as variables: not every viewer of SVG knows those.
    light, dark = (
        RULES.substitute({name.replace("-", ""): colour for name, colour in theme.items()}).strip()
        for theme in (LIGHT, DARK)
    )
    style = f"{light}\n{SHAPES.strip()}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    place = f'<svg x="20" y="44" width="{WIDTH - 40:g}" height="{height - 56:g}" '
    inner = picture.replace("<svg ", place, 1).replace(
        'role="img"', 'preserveAspectRatio="xMidYMin"', 1
    )
    (HERE / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img">\n'
        f"<style>\n{style}\n</style>\n"
        f'<rect class="sheet" x="1" y="1" width="{WIDTH - 2:g}" height="{height - 2:g}" rx="10"/>\n'
        f'<text class="heading" x="20" y="30">{heading}</text>\n{inner}\n{below}\n</svg>\n',
        encoding="utf-8",
    )
