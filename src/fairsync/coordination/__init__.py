"""One promise, many front ends: leases, the coordinator that grants them, and the front ends that search.

A `Coordinator` (coordinator.py) holds the promise and makes prices; a `FrontEnd` (front_end.py) searches under leases.

- *What is promised*: `CoordinatedItems` (coordinated_items.py) are the items with their promises or counted selections
  (`Counted`); `Targets` (targets.py) are what promises that end by the clock ask of the next requests, and
  target_terms.py makes terms of them.
- *Where the state is*: two classes with the same methods, called under the lock of the coordinator. `LocalState` keeps
  the loop's state in memory and is the only writer of its ledger. `SharedState` is one of several over a Postgres
  ledger: rows that it has read (`SharedView` of `SharedRows` and `SharedTerms`), its own prices (`OwnPrices`), and the
  certificate of all (`SharedCertificate`). `join_ledger` (shared_join.py) makes it.
- *What leases may do*: `LeaseTable` and, where promises overlap, `LeaseQuota`: the requests and slots that open leases
  may use.
- *Front ends*: `SearchedItems` are a front end's items, and how leases apply to them.
"""
