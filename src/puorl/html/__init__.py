"""Static HTML pages and SVG charts, without scripts."""
