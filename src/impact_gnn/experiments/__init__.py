"""The paper's synthetic study, run again: each module answers one question and is named by it.

`table3`: which correction helps on the temporal stochastic block model. `gamma`: how that depends on how fast
connections fade. `table1`: what a chronological split costs, and whether a model that is told the time does better.
Each has `run(...) -> dict` and `write(result, directory)`; nothing here is used by the library itself.
"""
