"""The connection to a Milvus server: calls are retried until a timeout, and errors say what to do."""

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from fairsync.errors import InvalidInputError, MissingPackageError
from fairsync.search.engines.retrying import no_answer, refusal, retry

_Answer = TypeVar("_Answer")

# Errors that a retry cannot cure, with their remedies. All others may pass while a server starts or moves data.
_NOT_FOUND = 100
_REFUSALS = {
    "UNAUTHENTICATED": "Check user and password, or the API key (api_key=).",
    "PERMISSION_DENIED": "Have an administrator grant it to a role of this user.",
    "UNIMPLEMENTED": "Update the server.",
}
_OTHER_REFUSAL = "Check url= and api_key=; if the collection is gone, make the index again with upload=True."
_OLDEST = (2, 3, 2)

_this_thread = threading.local()
for _logger in ("decorators", "client.connection_manager", "client.grpc_handler"):
    logging.getLogger(f"pymilvus.{_logger}").addFilter(lambda _: not getattr(_this_thread, "quiet", False))


class Connection:
    """Collections on a Milvus server, and the aliases that point to them.

    A call is retried with exponential backoff, also if a restarting server answers before it has loaded its data.

    Parameters
    ----------
    uri
        The address of the server. A path that ends in ``.db`` is a file of Milvus Lite.
    token
        The credentials, empty if the server asks for none.
    timeout
        Seconds that a call may take, with all retries.
    """

    def __init__(self, uri: str, token: str, timeout: float) -> None:
        try:
            import grpc
            import pymilvus
        except ImportError as error:
            raise MissingPackageError("Milvus needs pymilvus: pip install 'fairsync[milvus]'.") from error
        self.uri, self.token, self.timeout, self.milvus = uri, token, timeout, pymilvus
        self.is_lite, self.kinds = uri.endswith(".db"), pymilvus.DataType
        self._errors, self._rpc_error = (pymilvus.MilvusException, grpc.RpcError), grpc.RpcError

    @cached_property
    def client(self) -> Any:
        """The client of pymilvus, connected when it is first used."""
        return self.retry(lambda left: self.milvus.MilvusClient(self.uri, token=self.token, timeout=left))

    def retry(self, call: Callable[[float], _Answer]) -> _Answer:
        """Make an idempotent call, given the seconds left, and retry it until the timeout."""

        def attempt(left: float) -> _Answer:
            try:
                with _quiet():
                    return call(left)
            except self._errors as error:
                # pymilvus says of every error at the connection that the server may be unavailable.
                reason = error.__cause__ if isinstance(error.__cause__, self._rpc_error) else error
                if (remedy := self._remedy(reason)) is not None:
                    raise refusal(f"Milvus at {self.uri}", _words(reason), remedy) from error
                raise no_answer(f"Milvus at {self.uri}", _words(error)) from error

        return retry(attempt, self.timeout)

    def call(self, name: str, *given: Any, **more: Any) -> Any:
        """Call an idempotent method of pymilvus, and retry it until the timeout."""
        return self.retry(lambda left: getattr(self.client, name)(*given, timeout=left, **more))

    def query(self, collection: str, expression: str, names: Sequence[str], **more: Any) -> list[dict[str, Any]]:
        """Return these fields of the items that meet an expression, as they were written last."""
        return self.retry(lambda left: self.ask(collection, expression, names, left, **more))

    def ask(
        self, collection: str, expression: str, names: Sequence[str], left: float, **more: Any
    ) -> list[dict[str, Any]]:
        """Do the same as `query`, once."""
        found: list[dict[str, Any]] = self.client.query(
            collection, filter=expression, output_fields=[*names], consistency_level="Strong", timeout=left, **more
        )
        return found

    def index_of(self, collection: str, field: str) -> dict[str, Any] | None:
        """Return the description of the index of a field; None if there is none."""
        names = self.call("list_indexes", collection, field_name=field)
        return self.call("describe_index", collection, names[0]) if names else None

    def check_version(self) -> None:
        """Raise if the server is too old: without upserts and arrays."""
        version = str(self.call("get_server_version"))
        found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
        if found is not None and tuple(map(int, found.groups())) < _OLDEST:
            needed = ".".join(map(str, _OLDEST))
            raise InvalidInputError(f"Milvus at {self.uri} is {version}, and {needed} or newer is needed: update it.")

    def collection_of(self, alias: str) -> str | None:
        """Return the collection that an alias points to, None if there is no such alias."""
        return self.retry(lambda left: self._collection_of(alias, left))

    def set_alias(self, alias: str, collection: str) -> None:
        """Make an alias point to a collection, atomically."""

        def change(left: float) -> None:
            now = self._collection_of(alias, left)
            if now is None:
                self.client.create_alias(collection, alias, timeout=left)
            elif now != collection:
                self.client.alter_alias(collection, alias, timeout=left)

        self.retry(change)

    def server_time(self) -> int:
        """Return a timestamp of the server; 0, which stands for the latest, for Milvus Lite, which has none."""
        if self.is_lite:
            return 0
        connections = self.milvus.client.connection_manager
        # The connection of `self.client`: pymilvus shares one between all clients of an address and a token.
        config = connections.ConnectionConfig.from_uri(self.uri, token=self.token)
        manager = connections.ConnectionManager.get_instance()
        return int(self.retry(lambda left: manager.get_or_create(config).alloc_timestamp(timeout=left)))

    def _collection_of(self, alias: str, left: float) -> str | None:
        if not self.client.has_collection(alias, timeout=left):
            return None
        return str(self.client.describe_collection(alias, timeout=left)["collection_name"])

    def _remedy(self, error: Any) -> str | None:
        """Return what to do about an error that a retry cannot cure; None if it may."""
        known = self.milvus.exceptions
        code = error.code() if callable(error.code) else error.code
        if getattr(code, "name", "") in _REFUSALS:
            return _REFUSALS[code.name]
        is_final = code == _NOT_FOUND or getattr(error, "is_input_error", False)
        return (
            _OTHER_REFUSAL
            if is_final or isinstance(error, known.ParamError | known.ConnectionConfigException)
            else None
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep pymilvus from logging an error and its traceback before raising it: the error is retried or raised once."""
    _this_thread.quiet = True
    try:
        yield
    finally:
        _this_thread.quiet = False


def _words(error: Any) -> str:
    text = error.details() if callable(getattr(error, "details", None)) else getattr(error, "message", "")
    return text or type(error).__name__
