"""Where graphs come from: the temporal stochastic block model, files and other libraries."""
