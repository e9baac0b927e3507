"""The client of the service. It needs the schema of the API only: ``pip install 'fairsync[client]'``."""

from fairsync.errors import AccessError, RefusedError
from fairsync.service.client.client import AsyncClient, Client
from fairsync.service.client.endpoints import Retrieved

__all__ = ["AccessError", "AsyncClient", "Client", "RefusedError", "Retrieved"]
