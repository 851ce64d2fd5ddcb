"""`python -m impact_gnn` is the command `impact`."""

from impact_gnn.cli import main

if __name__ == "__main__":
    main()
