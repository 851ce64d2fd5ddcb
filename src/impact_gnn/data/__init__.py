"""Where graphs come from: the temporal stochastic block model, files and PyTorch Geometric."""
