"""Records of what is traced: written on the path of a request, turned into spans of OpenTelemetry when exported."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NamedTuple

from fairsync.extras import explain_missing

with explain_missing("[traces]"):
    from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAMPLED = 1
INTERNAL, SERVER = Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER
"""Kinds of spans."""


class SpanIds(NamedTuple):
    """What names a span.

    Attributes
    ----------
    trace, span : bytes
        Ids of the trace and of the span, 16 and 8 bytes.
    state : str
        The tracestate of the caller.
    """

    trace: bytes
    span: bytes
    state: str = ""


class TraceRecord:
    """A call or a micro-batch under way, with its parts. Ids and spans are made when it is exported.

    Parameters
    ----------
    name
        Name of the span.
    kind
        Kind of the span.
    parent
        What it is a part of: another record, the span of a caller, or None.
    causes
        Records of further calls that it answers.

    Attributes
    ----------
    attributes : dict
        Attributes of the span.
    parts : list of tuple
        Name, begin, end and failure of each part that has ended.
    failure : str or None
        Why it failed.
    """

    __slots__ = ("_ids", "_kind", "attributes", "began", "causes", "ended", "failure", "name", "parent", "parts")

    def __init__(
        self,
        name: str,
        kind: Span.SpanKind.ValueType = INTERNAL,
        parent: TraceRecord | SpanIds | None = None,
        causes: Sequence[TraceRecord] = (),
    ) -> None:
        self.name, self._kind, self.parent, self.causes = name, kind, parent, causes
        self.attributes: dict[str, str | int] = {}
        self.parts: list[tuple[str, int, int, str | None]] = []
        self.failure: str | None = None
        self._ids: SpanIds | None = None
        self.ended = 0
        self.began = time.time_ns()

    def ids(self) -> SpanIds:
        """Return its ids. Must be called by one thread only, the one that exports."""
        if self._ids is None:
            parent = self._parent_ids()
            trace = random.randbytes(16) if parent is None else parent.trace
            self._ids = SpanIds(trace, random.randbytes(8), "" if parent is None else parent.state)
        return self._ids

    def write(self, spans: ScopeSpans) -> None:
        """Append its spans: its own, then one for each part."""
        ids, parent = self.ids(), self._parent_ids()
        whole = spans.spans.add(
            name=self.name, trace_id=ids.trace, span_id=ids.span, parent_span_id=b"" if parent is None else parent.span,
            trace_state=ids.state, flags=_SAMPLED, kind=self._kind, start_time_unix_nano=self.began,
            end_time_unix_nano=self.ended,
        )  # fmt: skip
        for key, value in self.attributes.items():
            into = whole.attributes.add(key=key).value
            if isinstance(value, str):
                into.string_value = value
            else:
                into.int_value = value
        for cause in self.causes:
            linked = cause.ids()
            whole.links.add(trace_id=linked.trace, span_id=linked.span, trace_state=linked.state, flags=_SAMPLED)
        _write_failure(whole, self.failure)
        for name, began, ended, failure in self.parts:
            part = spans.spans.add(
                name=name, trace_id=ids.trace, span_id=random.randbytes(8), parent_span_id=ids.span,
                trace_state=ids.state, flags=_SAMPLED, kind=INTERNAL, start_time_unix_nano=began,
                end_time_unix_nano=ended,
            )  # fmt: skip
            _write_failure(part, failure)

    def _parent_ids(self) -> SpanIds | None:
        return self.parent.ids() if isinstance(self.parent, TraceRecord) else self.parent


def _write_failure(span: Span, failure: str | None) -> None:
    if failure is not None:
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, failure
