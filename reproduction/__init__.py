"""The paper's tables and figures run again, and claims about speed.

`python -m reproduction` lists them.

Nothing here is installed with the package. `runner` works off tasks, `results` holds what comes out
of them, and every study is a list of tasks: `table1`, `table2`, `table3` (with the γ figure),
`leaderboard` (ours against `baselines`); `rules` asks the past of its runs which rule chooses best;
`methods` draws what the methods do. `bench` holds the benchmarks, each named by what it measures.
"""
