"""Store: a cache of results on disk."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from fairsync import __version__
from fairsync.atomic_write import atomic_file
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Store:
    """A folder with one JSON file per result, named by a hash of its key.

    The key of a result contains everything that its value depends on, and the version of the program. Files are written
    atomically, so that a run can be interrupted at any moment.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.cell("sum", {"a": 2, "b": 3}, lambda: 2 + 3)
    5
    >>> store.cell("sum", {"b": 3, "a": 2}, lambda: 1 / 0)  # it is stored already
    5
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cell(self, what: str, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the value of a key. It is computed and stored if it is not there."""
        found, value = self.find(what, key)
        if found:
            return value
        # New values are converted to JSON and back too, so that the first run and later ones see the same values.
        text = json.dumps({"key": self._full(key), "value": compute()}, allow_nan=False)
        path = self._path(what, key)
        with atomic_file(path) as part:
            part.write_text(text + "\n", encoding="utf-8")
        return json.loads(text)["value"]

    def find(self, what: str, key: Mapping[str, Any]) -> tuple[bool, Any]:
        """Return whether a value is stored for the key, and the value."""
        path = self._path(what, key)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False, None
        try:
            return True, json.loads(text)["value"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(f"{path} is damaged ({error}): remove it, and it is computed again.") from error

    def _path(self, what: str, key: Mapping[str, Any]) -> Path:
        text = json.dumps(self._full(key), sort_keys=True)
        return self.folder / what / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    @staticmethod
    def _full(key: Mapping[str, Any]) -> dict[str, Any]:
        return {"fairsync": __version__, **key}
