"""The schema of the API: one set of structs for JSON, MessagePack, validation and the OpenAPI document.

Server, client and promise service share these structs. Decoding validates; constructing one in Python checks no types.
"""

from fairsync.service.schema.audit import AuditEntry, AuditView
from fairsync.service.schema.control_plane import (
    LeaseGrant,
    LeaseRequest,
    PriceList,
    PriceRow,
    SettledList,
    SettleRequest,
    SettleResult,
)
from fairsync.service.schema.explanation import ExplainAnswer, ExplainedCandidateView, ExplanationView, WhyNotView
from fairsync.service.schema.promises import (
    Pace,
    PacePoint,
    PastWindow,
    Preview,
    PromiseList,
    PromiseRecord,
    PromiseView,
    WindowRecord,
)
from fairsync.service.schema.record import JSON, MSGPACK, Label, Moment, Record, RequestId, encode_json, encode_msgpack
from fairsync.service.schema.retrieval import (
    LONGEST_HISTORY,
    CatalogSize,
    ImpressionReport,
    ImpressionReports,
    ImpressionResult,
    ItemIds,
    NumberArray,
    RetrieveAnswer,
    RetrieveAnswers,
    RetrieveColumns,
    RetrieveRequest,
    UpsertItems,
)
from fairsync.service.schema.status import (
    GENERAL_HINT,
    Alert,
    AttributeView,
    GroupView,
    HealthStatus,
    LeastCost,
    Overview,
    ProblemRecord,
    ReportView,
    ShardView,
)

__all__ = [
    "GENERAL_HINT", "JSON", "LONGEST_HISTORY", "MSGPACK", "Alert", "AttributeView", "AuditEntry", "AuditView",
    "CatalogSize", "ExplainAnswer", "ExplainedCandidateView", "ExplanationView", "GroupView", "HealthStatus",
    "ImpressionReport", "ImpressionReports", "ImpressionResult", "ItemIds", "Label", "LeaseGrant", "LeaseRequest",
    "LeastCost", "Moment", "NumberArray", "Overview", "Pace", "PacePoint", "PastWindow", "Preview", "PriceList",
    "PriceRow", "ProblemRecord", "PromiseList", "PromiseRecord", "PromiseView", "Record", "ReportView", "RequestId",
    "RetrieveAnswer", "RetrieveAnswers", "RetrieveColumns", "RetrieveRequest", "SettleRequest", "SettleResult",
    "SettledList", "ShardView", "UpsertItems", "WhyNotView", "WindowRecord", "encode_json", "encode_msgpack",
]  # fmt: skip
