"""Curricula: which tasks are tried, from where, for how long.

All are pure functions of counters and records, so that a resumed run continues identically.
Registered parts of kind `curriculum` come in these forms (options are keywords):

| form | signature | module |
| --- | --- | --- |
| horizon | `(step) -> most turns` | `horizon` |
| task sampling | `(Sequence[TaskHistory]) -> weights`, one per task | `task_sampling` |
| weak skills | `(Mapping[str, Tally]) -> Mix` | `feedback` |
| starts | `(Sequence[Snapshot]) -> weights`, one per snapshot | `start_states` |
| backward start | `(length, results) -> step` | `start_states` |
"""
