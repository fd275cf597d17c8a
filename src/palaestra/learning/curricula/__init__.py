"""Curricula: which tasks are tried, from where, for how long.

All are pure functions of counters and records, so that a resumed run goes on the same.
Registered parts of kind `curriculum` come in these forms (options are keywords):

| form | signature | where |
| --- | --- | --- |
| horizon | `(step) -> most turns` | `horizon` |
| task sampling | `(Sequence[TaskHistory]) -> weights`, one per task, for `draw` | `sampling` |
| weak skills | `(Mapping[str, Tally]) -> Mix` | `feedback` |
| starts | `(Sequence[Snapshot]) -> weights`, one per snapshot | `snapshots` |
| backward start | `(length, results) -> step` | `snapshots` |
"""
