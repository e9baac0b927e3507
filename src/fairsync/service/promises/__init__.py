"""The promise service: promises that end by the clock, planned, kept, counted and reported, without any HTTP.

`PromiseService` (promise_service.py) answers requests, counts impressions, and has the parts:

- *Planning*: the `Scheduler` (scheduler.py) divides time into `Periods` (periods.py), has the `Planner` (planning.py)
  plan each of them, and saves the state of all (saved_state.py). One replica leads (leadership.py). Time is that of
  clock.py and ledger_time.py.
- *Changing promises*: the `PromiseEditor` (promise_editor.py) makes, changes, previews (preview.py) and ends promises,
  by the rules of promise_changes.py; promise_series.py has promises for each label. audit.py records who did it.
- *Changing items*: `ItemUpdates` (item_updates.py), with what is saved of them (saved_items.py), or in an engine
  (hosted_items.py).
- *Counting*: columns.py says where the exposures of a promise are counted, impressions.py which items were shown,
  and how many of the candidates are.
- *Costs*: the `CostMonitor` (cost_monitor.py) estimates on a sample of the answers (reservoir.py) what promises cost,
  and the least possible (costs.py). budget.py and cost_book.py say what gives way.
- *Reports*: the `StatusReporter` (overview.py) with projections.py, pace.py, alerts.py and shards.py; past_windows.py
  and window_archive.py for windows that are over, and statement.py for a month of them. promise_texts.py is for
  explanations, attribute_views.py for those who choose what to promise. readiness.py says whether requests can be
  answered.

conversion.py makes promises of records of the API, and back. replay.py plays past traffic to a service.
"""
