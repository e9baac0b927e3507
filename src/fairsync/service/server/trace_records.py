"""Records of what is traced: written on the path of a request, turned into spans of OpenTelemetry when exported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fairsync.extras import explain_missing

with explain_missing("[traces]"):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.util.types import AttributeValue

_SCOPE, _IDS, _SAMPLED = (
    InstrumentationScope("fairsync"),
    RandomIdGenerator(),
    trace.TraceFlags(trace.TraceFlags.SAMPLED),
)


class TraceRecord:
    """A call or a micro-batch under way, with its parts. Ids and spans are made when it is exported.

    Parameters
    ----------
    name
        Name of the span.
    kind
        Kind of the span.
    parent
        Where it belongs to: another record, the span of a caller, or None.
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

    __slots__ = ("_context", "_kind", "attributes", "began", "causes", "ended", "failure", "name", "parent", "parts")

    def __init__(
        self,
        name: str,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        parent: TraceRecord | trace.SpanContext | None = None,
        causes: Sequence[TraceRecord] = (),
    ) -> None:
        self.name, self._kind, self.parent, self.causes = name, kind, parent, causes
        self.attributes: dict[str, AttributeValue] | None = None
        self.parts: list[tuple[str, int, int, str | None]] = []
        self.failure: str | None = None
        self._context: trace.SpanContext | None = None
        self.ended = 0
        self.began = time.time_ns()

    def context(self) -> trace.SpanContext:
        """Return its ids. Must be called by one thread only, the one that exports."""
        if self._context is None:
            self._context = _child_of(self.parent.context() if isinstance(self.parent, TraceRecord) else self.parent)
        return self._context

    def spans(self, resource: Resource) -> list[ReadableSpan]:
        """Return its spans: its own, then one for each part."""
        own, parent = self.context(), self.parent
        whole = ReadableSpan(
            self.name,
            own,
            parent.context() if isinstance(parent, TraceRecord) else parent,
            resource,
            self.attributes,
            links=[trace.Link(one.context()) for one in self.causes],
            kind=self._kind,
            status=_status(self.failure),
            start_time=self.began,
            end_time=self.ended,
            instrumentation_scope=_SCOPE,
        )
        parts = [
            ReadableSpan(
                name,
                _child_of(own),
                own,
                resource,
                status=_status(failure),
                start_time=began,
                end_time=ended,
                instrumentation_scope=_SCOPE,
            )
            for name, began, ended, failure in self.parts
        ]
        return [whole, *parts]


def _child_of(parent: trace.SpanContext | None) -> trace.SpanContext:
    own = _IDS.generate_span_id()
    if parent is None:
        return trace.SpanContext(_IDS.generate_trace_id(), own, is_remote=False, trace_flags=_SAMPLED)
    return trace.SpanContext(
        parent.trace_id, own, is_remote=False, trace_flags=_SAMPLED, trace_state=parent.trace_state
    )


def _status(failure: str | None) -> trace.Status:
    return trace.Status() if failure is None else trace.Status(trace.StatusCode.ERROR, failure)
