"""Messages over a whole graph: one operation, several engines, the same numbers.

`operator` is the operation, `passes` one pass of it over a matrix, `kernels` and `vectors` its inner loops,
`building` the edges by target, `memory` the engine for what fits into memory.
"""
