"""Options that are on or off."""

from typing import Annotated

import tyro

Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""Off unless it is given; the help need not say that of each."""
