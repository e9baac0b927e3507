"""Docstrings for the site: roles such as :class:`Catalog` become plain code."""

import re
from typing import Any

from griffe import Extension

_ROLE = re.compile(r":(?:class|func|meth|mod|exc|data|attr):`~?([^`]+)`")
_MATH = re.compile(r"^( *)\.\. math::\s*(.+)$", flags=re.MULTILINE)


class PlainRoles(Extension):
    """Rewrite docstrings when a module is loaded."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _MATH.sub(r"\1`\2`", text)
