"""A coordinator on a Ray cluster: an actor that front ends in any process share, and that Ray restarts if it dies."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairsync.catalog.groups import Groups
from fairsync.coordination.coordinator import Coordinator
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.search.ray.actor_names import NAMESPACE, check_connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.lease import Lease, Settlement
    from fairsync.hindsight import Hindsight
    from fairsync.promises.floors import Floors
    from fairsync.report import Report

_PROMISE, _GROWN = "promise", "promise to more groups"
# Seconds that a call of lease() blocks a thread of the actor before the front end calls again.
_LEASE_TIMEOUT = 0.2
# Seconds that the process of a coordinator may take to start, at least, and to end.
_START_SECONDS, _END_SECONDS = 300.0, 60.0
# Threads of the actor. Settling has threads of its own, so that it never queues behind leases that wait for it.
_LEASE_THREADS, _SETTLE_THREADS = 64, 4


class CoordinatorHost:
    """The actor: a coordinator over a durable ledger.

    Parameters
    ----------
    settings
        Arguments of :class:`fairsync.Coordinator`.
    ledger
        Path of the ledger's file.
    """

    def __init__(self, groups: Groups, settings: Mapping[str, Any], ledger: str) -> None:
        self._ledger = SqlLedger(ledger, len(groups.labels))
        promised = self._load_promise()
        if promised is not None and ray.get_runtime_context().was_current_actor_reconstructed:
            document = json.loads(promised)  # the promise may have changed since the first start
            groups = Groups(document["labels"], np.array(document["sizes"], dtype=np.int64))
            floors = dict(zip(document["labels"], document["floors"], strict=True))
            settings = {**settings, "floors": floors, "horizon": document["horizon"], "allow_infeasible": True}
        self._coordinator = Coordinator(groups, ledger=self._ledger, **settings)
        self._save_promise()

    def facts(self) -> dict[str, Any]:
        """Return the labels, k and policy, and on which node and in which process the actor runs."""
        context = ray.get_runtime_context()
        return {
            "labels": self._coordinator.labels,
            "k": self._coordinator.k,
            "node": context.get_node_id(),
            "pid": os.getpid(),
            "policy": self._coordinator.policy.name,
        }

    def lease(self, n: int, k: int | None = None) -> Lease | None:
        """Lease up to n requests of k candidates; None if that would block for long."""
        return self._coordinator.try_lease(n, timeout=_LEASE_TIMEOUT, k=k)

    @ray.method(concurrency_group="settling")
    def settle(self, number: int, settlement: Settlement) -> None:
        """Record the counts of a lease."""
        self._coordinator.settle(number, settlement)

    @ray.method(concurrency_group="settling")
    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests."""
        return self._coordinator.answers(request_ids)

    @ray.method(concurrency_group="settling")
    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        """Save answers that do not count."""
        self._coordinator.save_answers(answers)

    @ray.method(concurrency_group="settling")
    def release(self, number: int) -> None:
        """Return a lease that was not answered."""
        self._coordinator.release(number)

    def promise(self, floors: Floors | None, horizon: int | None, groups: Groups | None) -> None:
        """Replace the promise."""
        if groups is not None:  # save them before the ledger grows: the actor may be killed in between
            before = self._document(self._coordinator.groups)
            more = [0] * (len(groups.labels) - len(before["labels"]))
            grown = {"labels": groups.labels, "sizes": groups.group_sizes.tolist(), "floors": before["floors"] + more}
            self._ledger.save(_GROWN, json.dumps({**before, **grown}).encode())
        self._coordinator.promise(floors, horizon, groups)
        self._save_promise()

    def report(self, hindsight: Hindsight | None) -> Report:
        """Return the state of the promise."""
        return self._coordinator.report(hindsight)

    def close(self) -> None:
        """Save the policy's state, and close the ledger."""
        self._coordinator.close()
        self._ledger.close()

    def _save_promise(self) -> None:
        self._ledger.save(_PROMISE, json.dumps(self._document(self._coordinator.groups)).encode())

    def _document(self, groups: Groups) -> dict[str, Any]:
        terms = self._coordinator.terms
        sizes, floors = groups.group_sizes.tolist(), terms.floors.tolist()
        return {"labels": groups.labels, "sizes": sizes, "floors": floors, "horizon": terms.horizon}

    def _load_promise(self) -> bytes | None:
        """Return the latest saved promise that has as many groups as the ledger."""
        n_groups = len(self._ledger.totals().exposures)
        for name in (_PROMISE, _GROWN):
            saved = self._ledger.load(name)
            if saved is not None and len(json.loads(saved)["labels"]) == n_groups:
                return saved
        return None


class RayCoordinator:
    """A handle on the coordinator of a cluster: give it to :class:`fairsync.FrontEnd`.

    If its process dies, Ray restarts it over the same ledger, and calls are repeated automatically. Calls that were
    acknowledged are recorded, the others are repeated, and none counts twice.

    Parameters
    ----------
    name
        Name of a coordinator that runs on the cluster; see `start`.
    timeout
        Seconds that a call may take, including a restart.
    """

    def __init__(self, name: str = "fairsync", timeout: float = 60.0) -> None:
        check_connected()
        if not timeout > 0:
            raise InvalidInputError(f"timeout must be a positive number of seconds, got {timeout}.")
        self.name, self.timeout = name, timeout
        try:
            self._actor = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        except ValueError:
            raise InvalidInputError(
                f"there is no coordinator {name!r} on this cluster: start it with RayCoordinator.start(...)."
            ) from None
        self._k = int(self.facts()["k"])

    @classmethod
    def start(
        cls,
        groups: Grouped,
        ledger: str,
        name: str = "fairsync",
        *,
        timeout: float = 60.0,
        **settings: Any,
    ) -> RayCoordinator:
        """Start a coordinator on the node of the caller. It outlives this process, until `end` is called.

        Parameters
        ----------
        groups
            A catalog, or its groups.
        ledger
            Path of the ledger's file. An existing record is continued, so that a coordinator whose node is lost can be
            started on another one, from the file or a backup of it.
        name
            Name under which front ends find it.
        timeout
            Seconds that a call may take, including a restart. The start may take five minutes in any case.
        settings
            As for :class:`fairsync.Coordinator`: k, floors, horizon, policy, batch_size, max_exclude, lease_seconds.
        """
        check_connected()
        groups = Groups(list(groups.labels), groups.group_sizes)
        if _exists(name):
            raise InvalidInputError(f"a coordinator {name!r} runs already: connect to it, or end it first.")
        # Wrong arguments are refused here, before an actor is started.
        with SqlLedger(ledger, len(groups.labels)) as tried:
            Coordinator(groups, ledger=tried, **settings)
        here = ray.get_runtime_context().get_node_id()
        # Ray's type hints lack concurrency groups.
        make_actor: Any = ray.remote(concurrency_groups={"settling": _SETTLE_THREADS})  # type: ignore[call-overload]
        host = make_actor(CoordinatorHost).options(
            name=_actor_name(name),
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,  # it computes little, and must not be queued behind tasks that compute
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
            max_restarts=-1,
            max_task_retries=-1,  # calls are idempotent; a lease whose reply was lost expires
            max_concurrency=_LEASE_THREADS,
        )
        actor = host.remote(groups, settings, ledger)
        try:
            with _translated_errors(name):
                ray.get(actor.facts.remote(), timeout=max(timeout, _START_SECONDS))
        except BaseException:
            ray.kill(actor)
            raise
        return cls(name, timeout)

    @staticmethod
    def end(name: str = "fairsync") -> bool:
        """End a coordinator; return whether there was one. Its ledger stays."""
        check_connected()
        if not _exists(name):
            return False
        actor = ray.get_actor(_actor_name(name), namespace=NAMESPACE)
        with _translated_errors(name):
            ray.get(actor.close.remote(), timeout=_END_SECONDS)
        ray.kill(actor)
        deadline = time.monotonic() + _END_SECONDS
        while _exists(name) and time.monotonic() < deadline:  # Ray frees the name a moment later
            time.sleep(0.05)
        return True

    @property
    def labels(self) -> Sequence[Label]:
        """The group labels, in the order of their codes."""
        labels: list[Label] = self.facts()["labels"]
        return labels

    @property
    def promises(self) -> None:
        """None: a coordinator on Ray keeps floors of groups."""
        return

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self._k

    def lease(self, n: int, k: int | None = None) -> Lease:
        """Lease up to n requests of k candidates. Blocks while granting them could make a floor unreachable."""
        lease: Lease | None = None
        while lease is None:
            lease = self._call("lease", n, k)
        return lease

    def settle(self, number: int, settlement: Settlement) -> None:
        """Record the counts of a lease, and answers by request id. Idempotent: settling again changes nothing."""
        self._call("settle", number, settlement)

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; see `Ledger.answers`."""
        answers: dict[str, bytes] = self._call("answers", list(request_ids))
        return answers

    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        """Save answers that do not count, by request id; see `Coordinator.save_answers`."""
        self._call("save_answers", dict(answers))

    def release(self, number: int) -> None:
        """Return a lease that was not answered. Its requests can be leased again."""
        self._call("release", number)

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Replace the promise; see `Coordinator.promise`."""
        groups = None if catalog is None else Groups(list(catalog.labels), catalog.group_sizes)
        self._call("promise", floors, horizon, groups)

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return the state of the promise."""
        report: Report = self._call("report", hindsight)
        return report

    def facts(self) -> dict[str, Any]:
        """Return the labels, k and policy, and on which node and in which process the coordinator runs."""
        facts: dict[str, Any] = self._call("facts")
        return facts

    def _call(self, method: str, *arguments: Any) -> Any:
        with _translated_errors(self.name):
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=self.timeout)


def _actor_name(name: str) -> str:
    return f"coordinator of {name}"


def _exists(name: str) -> bool:
    try:
        ray.get_actor(_actor_name(name), namespace=NAMESPACE)
    except ValueError:
        return False
    return True


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Re-raise errors of this package as the actor raised them, and say what to do if the actor does not answer."""
    try:
        yield
    except RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, FairSyncError):
            raise cause from None
        raise
    except (RayActorError, GetTimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BackendUnavailableError(
            f"The coordinator {name!r} does not answer ({reason}). It starts again by itself where it can: ask again."
        ) from error
