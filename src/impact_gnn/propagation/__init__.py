"""Messages over a whole graph, on any engine: hops, label hops, metapaths, squashing."""
