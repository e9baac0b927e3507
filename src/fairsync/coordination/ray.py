"""A coordinator on a Ray cluster: one actor that front ends in any process share, and that may die and come back."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairsync.catalog.groups import Groups
from fairsync.coordination.coordinator import Coordinator
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.ledger import SqliteLedger
from fairsync.search.ray.actor_names import NAMESPACE, check_connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.books import Lease
    from fairsync.floors import Floors
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Entry
    from fairsync.policies import Sample
    from fairsync.report import Report

_PROMISE, _GROWN = "promise", "promise to more groups"
# A front end that has to wait asks again so often. Each waits in a thread of the actor: there are enough for all, and
# those who bring something back have threads of their own, so that they never queue behind the ones who wait for them.
_PATIENCE = 0.2
_WAITING_AT_ONCE, _SETTLING_AT_ONCE = 64, 4


class CoordinatorHost:
    """The actor: a coordinator over a ledger that outlives it.

    Parameters
    ----------
    settings
        For :class:`fairsync.Coordinator`.
    ledger
        The path of its ledger.
    """

    def __init__(self, groups: Groups, settings: Mapping[str, Any], ledger: str) -> None:
        self._ledger = SqliteLedger(ledger, len(groups.labels))
        promised = self._kept_promise()
        if promised is not None and ray.get_runtime_context().was_current_actor_reconstructed:
            document = json.loads(promised)  # what was promised since it was started
            groups = Groups(document["labels"], np.array(document["sizes"], dtype=np.int64))
            floors = dict(zip(document["labels"], document["floors"], strict=True))
            settings = {**settings, "floors": floors, "horizon": document["horizon"], "allow_infeasible": True}
        self._coordinator = Coordinator(groups, ledger=self._ledger, **settings)
        self._keep_promise()

    def facts(self) -> dict[str, Any]:
        """Return what front ends must know, and where this runs."""
        context = ray.get_runtime_context()
        return {
            "labels": self._coordinator.labels,
            "k": self._coordinator.k,
            "node": context.get_node_id(),
            "pid": os.getpid(),
            "policy": self._coordinator.policy.name,
        }

    def lease(self, n: int) -> Lease | None:
        """Hand out up to n requests; None if it has to wait for long."""
        return self._coordinator.try_lease(n, patience=_PATIENCE)

    @ray.method(concurrency_group="settling")
    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease."""
        self._coordinator.settle(number, entry, sample, answers)

    @ray.method(concurrency_group="settling")
    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request."""
        return self._coordinator.answer(request_id)

    @ray.method(concurrency_group="settling")
    def release(self, number: int) -> None:
        """Take a lease back."""
        self._coordinator.release(number)

    def promise(self, floors: Floors | None, horizon: int | None, groups: Groups | None) -> None:
        """Promise something else from now on."""
        if groups is not None:  # they are written down before the ledger counts them: it may be killed in between
            before = self._document(self._coordinator.groups)
            more = [0] * (len(groups.labels) - len(before["labels"]))
            grown = {"labels": groups.labels, "sizes": groups.group_sizes.tolist(), "floors": before["floors"] + more}
            self._ledger.save(_GROWN, json.dumps({**before, **grown}).encode())
        self._coordinator.promise(floors, horizon, groups)
        self._keep_promise()

    def report(self, hindsight: Hindsight | None) -> Report:
        """Return where the promise stands."""
        return self._coordinator.report(hindsight)

    def close(self) -> None:
        """Keep what was learnt, and let go of the ledger."""
        self._coordinator.save()
        self._ledger.close()

    def _keep_promise(self) -> None:
        self._ledger.save(_PROMISE, json.dumps(self._document(self._coordinator.groups)).encode())

    def _document(self, groups: Groups) -> dict[str, Any]:
        terms = self._coordinator.terms
        sizes, floors = groups.group_sizes.tolist(), terms.floors.tolist()
        return {"labels": groups.labels, "sizes": sizes, "floors": floors, "horizon": terms.horizon}

    def _kept_promise(self) -> bytes | None:
        """Return what was promised last, to as many groups as the ledger counts."""
        counted = len(self._ledger.totals().exposures)
        for name in (_PROMISE, _GROWN):
            kept = self._ledger.load(name)
            if kept is not None and len(json.loads(kept)["labels"]) == counted:
                return kept
        return None


class RayCoordinator:
    """The coordinator of a cluster, as front ends see it: give it to :class:`fairsync.FrontEnd`.

    If its process dies, Ray starts it again over the same ledger, and calls go on by themselves: what it had
    acknowledged is recorded, what it had not is said again, and neither counts twice.

    Parameters
    ----------
    name
        Of a coordinator that runs on the cluster; see `start`.
    timeout
        Seconds that a call may take, with a restart in between.
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
        """Start a coordinator that lives until it is ended, also when this process is gone, on the node of the caller.

        Parameters
        ----------
        groups
            A catalog, or its groups.
        ledger
            Where exposures are recorded: the path of a file. It may hold a record already, which is then gone on with:
            so a coordinator whose node is lost can be started on another, from the file or a copy of it.
        name
            Under which front ends find it.
        timeout
            As for the class.
        settings
            As for :class:`fairsync.Coordinator`: k, floors, horizon, policy, batch_size, lease_seconds.
        """
        check_connected()
        groups = Groups(list(groups.labels), groups.group_sizes)
        if _exists(name):
            raise InvalidInputError(f"a coordinator {name!r} runs already: connect to it, or end it first.")
        # What is wrong is said here, and nothing is started.
        with SqliteLedger(ledger, len(groups.labels)) as tried:
            Coordinator(groups, ledger=tried, **settings)
        here = ray.get_runtime_context().get_node_id()
        # Ray's types do not know of concurrency groups.
        make_actor: Any = ray.remote(concurrency_groups={"settling": _SETTLING_AT_ONCE})  # type: ignore[call-overload]
        host = make_actor(CoordinatorHost).options(
            name=_actor_name(name),
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,  # it hardly computes, and must not be kept waiting by those who do
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
            max_restarts=-1,
            max_task_retries=-1,  # any call may come twice: a lease that nobody got expires, the rest changes nothing
            max_concurrency=_WAITING_AT_ONCE,
        )
        actor = host.remote(groups, settings, ledger)
        try:
            with _told(name):
                ray.get(actor.facts.remote(), timeout=timeout)
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
        with _told(name):
            ray.get(actor.close.remote(), timeout=10.0)
        ray.kill(actor)
        return True

    @property
    def labels(self) -> Sequence[Label]:
        """The group labels, in the order of their codes."""
        labels: list[Label] = self.facts()["labels"]
        return labels

    @property
    def k(self) -> int:
        """Candidates per request."""
        return self._k

    def lease(self, n: int) -> Lease:
        """Hand out up to n requests; wait where the promise asks for it."""
        lease: Lease | None = None
        while lease is None:
            lease = self._call("lease", n)
        return lease

    def settle(
        self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes] | None = None
    ) -> None:
        """Write down what came of a lease, and answers to be kept; saying it again changes nothing."""
        self._call("settle", number, entry, sample, answers)

    def answer(self, request_id: str) -> bytes | None:
        """Return the answer that is kept for a request; see `Ledger.answer`."""
        answer: bytes | None = self._call("answer", request_id)
        return answer

    def release(self, number: int) -> None:
        """Take a lease back that was not answered."""
        self._call("give_back", number)

    def promise(self, floors: Floors | None = None, horizon: int | None = None, catalog: Grouped | None = None) -> None:
        """Promise something else from now on; see `Coordinator.promise`."""
        groups = None if catalog is None else Groups(list(catalog.labels), catalog.group_sizes)
        self._call("promise", floors, horizon, groups)

    def report(self, hindsight: Hindsight | None = None) -> Report:
        """Return where the promise stands."""
        report: Report = self._call("report", hindsight)
        return report

    def facts(self) -> dict[str, Any]:
        """Return labels and k, and on which node and in which process the coordinator runs."""
        facts: dict[str, Any] = self._call("facts")
        return facts

    def _call(self, method: str, *arguments: Any) -> Any:
        with _told(self.name):
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
def _told(name: str) -> Iterator[None]:
    """Raise our own errors as they were raised in the actor, and say so where there is no answer."""
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
