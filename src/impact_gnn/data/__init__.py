"""Where graphs come from: temporal stochastic block models, files and PyTorch Geometric."""
